// What the AI SDK gets of a structured answer through its community provider: `node ai_sdk_provider.mjs URL`.
import { generateText, Output, streamText } from "ai";
import { createOpencode } from "ai-sdk-provider-opencode-sdk";
import { z } from "zod";

const [base] = process.argv.slice(2);
const opencode = createOpencode({ baseUrl: base, autoStartServer: false });
const model = () => opencode("scripted/rules");
const city = z.object({ city: z.string(), people: z.number().int(), rivers: z.array(z.string()) });

const generated = await generateText({ model: model(), output: Output.object({ schema: city }), prompt: "Which city?" });
const streamed = streamText({ model: model(), output: Output.object({ schema: city }), prompt: "And now?" });
for await (const _ of streamed.textStream);
const failed = await generateText({ model: model(), output: Output.object({ schema: city }), prompt: "Once more" }).then(
  (result) => result.output,
  (error) => ({ error: String(error) }),
);
console.log(JSON.stringify({ generated: generated.output, streamed: await streamed.output, failed }));
process.exit(0);
