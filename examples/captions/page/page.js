// Sends numbered blocks of audio over a WebSocket and shows the text that comes back. A lost connection is opened
// again, and the session goes on from the first block that the server does not have.
const SAMPLE_RATE_HZ = 16000;
const RETRY_MS = 500;
const MOST_BLOCKS = 600; // a minute that waits for a connection; a longer break ends the session

const byId = (id) => document.getElementById(id);
const shown = { first: [], middle: [], last: [] };

class Session {
  constructor() {
    this.name = null;
    this.generation = 0;
    this.next = 0; // number of the next block of the microphone
    this.blocks = new Map(); // those that the server has not counted yet
    this.sent = new Map(); // when each of them was sent, in milliseconds
    this.isLineEmpty = true;
    this.isOver = false;
    this.connect();
  }

  connect() {
    status("connecting");
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    this.socket = new WebSocket(`${scheme}://${location.host}/captions`);
    this.isGreeted = false;
    this.socket.onopen = () => {
      const known = this.name === null ? {} : { session: this.name, generation: this.generation };
      this.socket.send(JSON.stringify(known));
    };
    this.socket.onmessage = (event) => this.take(JSON.parse(event.data));
    this.socket.onclose = () => {
      this.isGreeted = false;
      if (!this.isOver) {
        status("connection lost, trying again");
        setTimeout(() => this.connect(), RETRY_MS);
      }
    };
  }

  take(message) {
    if ("refused" in message) {
      this.finish(message.refused);
    } else if ("session" in message) {
      this.name = message.session;
      this.generation = message.generation;
      byId("lines").replaceChildren(...message.lines.map(paragraph));
      this.show(message.transient);
      this.counted(message.next);
      this.isGreeted = true;
      status("connected");
      for (const number of [...this.blocks.keys()].sort((one, other) => one - other)) this.transmit(number);
      if (this.isEnding) this.socket.send(JSON.stringify({ end: true }));
    } else if ("line" in message) {
      byId("lines").append(paragraph(message.line));
      if (message.steady) measured("last", message.milliseconds);
    } else if ("ended" in message) {
      this.finish("ended");
    } else {
      const sent = this.sent.get(message.next - 1);
      if (message.transient && sent !== undefined) {
        measured(this.isLineEmpty ? "first" : "middle", performance.now() - sent);
      }
      this.counted(message.next);
      this.show(message.transient);
    }
  }

  show(text) {
    byId("transient").textContent = text;
    this.isLineEmpty = text === "";
    byId("transient").scrollIntoView({ block: "nearest" });
  }

  counted(next) {
    for (const number of this.blocks.keys()) {
      if (number < next) {
        this.blocks.delete(number);
        this.sent.delete(number);
      }
    }
  }

  add(samples) {
    if (this.isOver || this.isEnding) return;
    if (this.blocks.size === MOST_BLOCKS) return this.finish("no connection for a minute");
    const number = this.next++;
    const block = new Uint8Array(4 + samples.byteLength);
    new DataView(block.buffer).setUint32(0, number, true);
    block.set(new Uint8Array(samples.buffer), 4); // the browsers that there are have little-endian processors
    this.blocks.set(number, block);
    if (this.isGreeted) this.transmit(number);
  }

  transmit(number) {
    this.sent.set(number, performance.now());
    this.socket.send(this.blocks.get(number));
  }

  end() {
    this.isEnding = true;
    if (this.isGreeted) this.socket.send(JSON.stringify({ end: true }));
  }

  finish(reason) {
    this.isOver = true;
    this.socket.close();
    status(reason);
    stopSound();
  }
}

function paragraph(text) {
  const line = document.createElement("p");
  line.textContent = text;
  return line;
}

function status(text) {
  byId("status").textContent = text;
}

function measured(which, milliseconds) {
  shown[which].push(milliseconds);
  const sorted = [...shown[which]].sort((one, other) => one - other);
  byId(which).textContent = sorted[Math.floor(sorted.length / 2)].toFixed(0);
}

let session = null;
let sound = null; // the audio context and what ends its source

async function start(open) {
  stopSound();
  const context = new AudioContext({ sampleRate: SAMPLE_RATE_HZ });
  try {
    await context.audioWorklet.addModule("recorder.js");
    const { source, stop } = await open(context);
    const recorder = new AudioWorkletNode(context, "recorder");
    session = new Session();
    window.session = session; // for a look from the console
    recorder.port.onmessage = (event) => session.add(event.data);
    source.connect(recorder).connect(context.destination);
    sound = { context, stop };
    byId("stop").disabled = false;
    if (source.start) {
      source.onended = () => session.end();
      source.start();
    }
  } catch (error) {
    await context.close();
    status(`no sound: ${error.message}`);
  }
}

function stopSound() {
  if (sound === null) return;
  sound.stop();
  sound.context.close();
  sound = null;
  byId("stop").disabled = true;
}

byId("microphone").onclick = () =>
  start(async (context) => {
    const stream = await navigator.mediaDevices.getUserMedia({ audio: { channelCount: 1 } });
    const stop = () => stream.getTracks().forEach((track) => track.stop());
    return { source: context.createMediaStreamSource(stream), stop };
  });

byId("file").onchange = (event) =>
  start(async (context) => {
    const source = context.createBufferSource();
    source.buffer = await context.decodeAudioData(await event.target.files[0].arrayBuffer());
    return { source, stop: () => (source.onended = null) };
  });

byId("stop").onclick = () => {
  session.end();
  stopSound();
};

async function showDelays() {
  try {
    const { sessions, milliseconds } = await (await fetch("delays")).json();
    for (const [part, times] of Object.entries(milliseconds)) {
      byId(part).textContent = times.map((time) => time.toFixed(1)).join(", ");
    }
    byId("sessions").textContent = sessions;
  } catch {
    byId("sessions").textContent = "-";
  }
}
setInterval(showDelays, 1000);
