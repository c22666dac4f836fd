// The workloads as a Restate service, with its SDK for TypeScript; `restate_service.py` is the same in Python.
"use strict";

const http2 = require("node:http2");
const restate = require("@restatedev/restate-sdk");

const [port, openRuns, napSeconds] = process.argv.slice(2).map(Number);
const step = (stage, data) => ({ ...data, stage, total: data.total + stage });

const bench = restate.service({
  name: "Bench",
  handlers: {
    sequence: async (ctx, data) => {
      const one = await ctx.run("step-1", async () => step(1, data));
      const two = await ctx.run("step-2", async () => step(2, one));
      return await ctx.run("step-3", async () => step(3, two));
    },
    single: async (ctx, data) => await ctx.run("step-1", async () => step(1, data)),
    fanout: async (ctx, items) =>
      await restate.RestatePromise.all(
        items.map((item, number) => ctx.run(`step-${number}`, async () => step(1, item))),
      ),
  },
});

let napping = 0;
let finished = 0;
const sleep = async (data) => {
  napping += 1;
  if (napping === openRuns) console.log("napping");
  await new Promise((resolve) => setTimeout(resolve, napSeconds * 1000));
  return step(2, data);
};

const nap = restate.workflow({
  name: "Nap",
  handlers: {
    run: async (ctx, data) => {
      const one = await ctx.run("step-1", async () => step(1, data));
      const two = await ctx.run("step-2", async () => await sleep(one));
      const three = await ctx.run("step-3", async () => step(3, two));
      finished += 1;
      if (finished === openRuns) console.log("finished");
      return three;
    },
  },
});

const handler = restate.createEndpointHandler({ services: [bench, nap] });
http2.createServer(handler).listen(port, "127.0.0.1");
