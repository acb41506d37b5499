"use strict";
const live = document.getElementById("live");
async function refresh() {
  try {
    const answer = await fetch("/", { cache: "no-store" });
    const next = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("live");
    if (next) live.replaceChildren(...next.children);
  } catch (e) {
    const gone = document.createElement("p");
    gone.className = "down";
    gone.textContent = "The server does not answer.";
    live.replaceChildren(gone);
  }
}
setInterval(() => { if (!document.hidden) refresh(); }, 2000);
