"use strict";
// Draws images, plays audio and saves files of results. A strict Content-Security-Policy blocks data: URLs, so the bytes
// are decoded here.
(() => {
  const MAX_PIXELS = 50_000_000;
  const root = document.querySelector(".playground");
  if (!root) return;

  const readBytes = (figure) => Uint8Array.from(atob(figure.dataset.base64), (char) => char.charCodeAt(0));

  const addText = (figure, text) => {
    figure.querySelector("figcaption").append(" ", text);
  };

  const addButton = (figure, text) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "button";
    button.textContent = text;
    figure.append(button, " ");
    return button;
  };

  const drawImage = async (figure) => {
    const bitmap = await createImageBitmap(new Blob([readBytes(figure)], { type: figure.dataset.type }));
    addText(figure, `${bitmap.width} × ${bitmap.height}`);
    if (bitmap.width * bitmap.height > MAX_PIXELS) throw new RangeError("too large");
    const canvas = document.createElement("canvas");
    canvas.width = bitmap.width;
    canvas.height = bitmap.height;
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", figure.dataset.label);
    canvas.getContext("2d").drawImage(bitmap, 0, 0);
    figure.prepend(canvas);
  };

  const offerAudio = (figure) => {
    const button = addButton(figure, figure.dataset.playText);
    let context = null;
    const stop = () => {
      context?.close();
      context = null;
      button.textContent = figure.dataset.playText;
    };
    button.addEventListener("click", async () => {
      if (context) return stop();
      context = new AudioContext();
      button.textContent = figure.dataset.stopText;
      try {
        const source = context.createBufferSource();
        source.buffer = await context.decodeAudioData(readBytes(figure).buffer);
        source.connect(context.destination);
        source.addEventListener("ended", stop);
        source.start();
        figure.dataset.seconds = source.buffer.duration.toFixed(1);
      } catch {
        stop();
        fail(figure);
      }
    });
  };

  const offerFile = (figure) => {
    addButton(figure, figure.dataset.saveText).addEventListener("click", () => {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([readBytes(figure)], { type: "application/octet-stream" }));
      link.download = figure.dataset.file;
      link.click();
      URL.revokeObjectURL(link.href);
    });
  };

  const fail = (figure) => {
    addText(figure, figure.dataset.failedText);
  };

  const show = async (figure) => {
    if (figure.dataset.shown) return;
    figure.dataset.shown = "true";
    offerFile(figure);
    try {
      if (figure.dataset.media === "image") await drawImage(figure);
      if (figure.dataset.media === "audio") offerAudio(figure);
    } catch {
      fail(figure);
    }
  };

  const showAll = () => root.querySelectorAll("[data-media]").forEach(show);
  new MutationObserver(showAll).observe(root, { childList: true, subtree: true });
  showAll();
})();
