// What a foreign page tries: each attempt gives its kind and the text that was read.
async ({ at, add, relabel, remove, csv }) => {
  const tried = [];
  const attempt = async (kind, work) => {
    const late = new Promise((done) => setTimeout(done, 3000, ""));
    const text = await Promise.race([work().catch(() => ""), late]);
    tried.push([kind, String(text ?? "")]);
  };
  const text = async (answer) => (answer.ok ? await answer.text() : "");
  const loaded = (element) => new Promise((done) => {
    element.onload = () => done(element);
    element.onerror = () => done(element);
    document.body.append(element);
  });
  const paths = ["/", "/v1/model", "/v1/candidates", "/metrics", "/openapi.json"];
  for (const path of paths) {
    for (const mode of ["cors", "no-cors", "same-origin"]) {
      await attempt(`fetch, ${mode}`, async () =>
        text(await fetch(at + path, { mode, credentials: "include" })));
    }
    await attempt("XMLHttpRequest", () => new Promise((done) => {
      const request = new XMLHttpRequest();
      request.onloadend = () => done(request.status === 200 ? request.responseText : "");
      request.open("GET", at + path);
      request.send();
    }));
    await attempt("frame", async () => {
      const frame = document.createElement("iframe");
      frame.src = at + path;
      const { contentDocument: inside } = await loaded(frame);
      return inside?.contentType === "text/html" ? inside.body.innerHTML : "";
    });
  }
  await attempt("script", async () => {
    const script = document.createElement("script");
    script.src = `${at}/v1/model`;
    await loaded(script);
  });
  await attempt("module", async () => Object.keys(await import(`${at}/static/format.js`)));
  const sets = { POST: add, PATCH: relabel, DELETE: remove };
  const types = ["application/json", "text/plain", "application/x-www-form-urlencoded"];
  for (const [method, set] of Object.entries(sets)) {
    for (const type of [...types, ""]) {
      const body = type ? set : new Blob([set]);
      const headers = type ? { "Content-Type": type } : {};
      for (const mode of ["cors", "no-cors"]) {
        await attempt(`change by fetch, ${mode}`, async () =>
          text(await fetch(`${at}/v1/candidates`, { method, mode, headers, body })));
      }
    }
  }
  for (const type of ["text/csv", "text/plain"]) {
    await attempt("change by fetch, cors", async () =>
      text(await fetch(`${at}/v1/candidates/table?target=target`,
        { method: "POST", headers: { "Content-Type": type }, body: csv })));
  }
  await attempt("change with a made-up token", async () =>
    text(await fetch(`${at}/v1/candidates`, {
      method: "POST", body: add,
      headers: { "Content-Type": "application/json", Authorization: "Bearer undefined" },
    })));
  await attempt("compaction by fetch", async () =>
    text(await fetch(`${at}/v1/compact`, { method: "POST", mode: "no-cors" })));
  await attempt("compaction by beacon", async () => {
    navigator.sendBeacon(`${at}/v1/compact`);
  });
  for (const body of [add, new Blob([add]), new Blob([add], { type: "text/plain" })]) {
    await attempt("change by beacon", async () => {
      navigator.sendBeacon(`${at}/v1/candidates`, body);
    });
  }
  const forms = ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"];
  for (const path of ["/v1/candidates", "/v1/compact"]) {
    for (const type of forms) {
      await attempt("change by form", async () => {
        const frame = document.createElement("iframe");
        frame.name = `frame-${Math.random()}`;
        await loaded(frame);
        const form = document.createElement("form");
        // With an equals sign in a string of it, the body is JSON.
        const [name, value] = [add.slice(0, -1) + ', "x": "', '"}'];
        const input = Object.assign(document.createElement("input"), { name, value });
        Object.assign(form, { method: "POST", action: at + path, enctype: type });
        form.target = frame.name;
        form.append(input);
        document.body.append(form);
        const done = new Promise((then) => { frame.onload = then; });
        form.submit();
        await done;
      });
    }
  }
  await attempt("WebSocket", () => new Promise((done) => {
    const socket = new WebSocket(`${at || location.origin}/v1/model`.replace("http", "ws"));
    socket.onmessage = ({ data }) => done(data);
    socket.onerror = socket.onclose = () => done("");
  }));
  await attempt("EventSource", () => new Promise((done) => {
    const source = new EventSource(`${at}/v1/model`);
    source.onmessage = ({ data }) => done(data);
    source.onerror = () => { source.close(); done(""); };
  }));
  return tried;
}
