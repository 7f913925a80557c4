// The search of the site runs in a worker, and browsers start none for pages that are opened from a file. Then a hidden
// frame does the same work: it runs the worker's script, and messages go to it and come from it as events.
if (location.protocol === "file:") {
  window.Worker = window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      frame.srcdoc = "<body></body>"
      this.ready = new Promise((loaded) => frame.addEventListener("load", loaded)).then(() => this.begin(frame, url))
      document.body.append(frame)
    }

    begin(frame, url) {
      this.inside = frame.contentWindow
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
      this.inside.importScripts = async (...urls) => {
        for (const one of urls) await this.load(one)
      }
      return this.load(url)
    }

    load(url) {
      return new Promise((loaded, failed) => {
        const script = this.inside.document.createElement("script")
        script.src = url
        script.onload = loaded
        script.onerror = failed
        this.inside.document.body.append(script)
      })
    }

    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })))
    }
  }
}
