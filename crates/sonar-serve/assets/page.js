// Opens a session with the code behind the # of a link, then says what the history has.

const state = document.getElementById("state");

/** The answer to a request; if it is refused, an error with the reason in words. */
async function ask(path, options) {
  const answer = await fetch(path, options);
  if (!answer.ok) throw new Error((await answer.json()).words);
  return answer;
}

async function openSession() {
  const code = location.hash.slice(1);
  if (code === "") return;
  // It works once, and is of no use in the history of the browser.
  history.replaceState(null, "", location.pathname + location.search);
  await ask("api/v1/session", { method: "POST", headers: { Authorization: `Bearer ${code}` } });
}

function shown(ns) {
  return new Date(ns / 1e6).toLocaleString();
}

try {
  await openSession();
  const status = await (await ask("api/v1/status")).json();
  const host = status.host === null ? "" : ` of ${status.host}`;
  state.textContent =
    status.start_ns === null
      ? `The history in ${status.history} is empty.`
      : `The history${host} covers ${shown(status.start_ns)} to ${shown(status.end_ns)}.`;
  document.getElementById("documents").hidden = false;
} catch (error) {
  state.textContent = `${error.message}.`;
}
