const PATIENCE = 15_000

// What a subscription has brought so far, and the first event that fits.
export class Events {
  /** @type {any[]} */
  seen = []
  /** @type {{ matches: (event: any) => boolean, resolve: (event: any) => void }[]} */
  #waiting = []

  async listen(stream) {
    for await (const event of stream) {
      this.seen.push(event)
      this.#waiting = this.#waiting.filter(({ matches, resolve }) => !(matches(event) && (resolve(event), true)))
    }
  }

  // The first event that matches, also one that has come already: after the first `from` events.
  first(matches, from = 0) {
    const found = this.seen.slice(from).find(matches)
    return found ? Promise.resolve(found) : this.#next(matches)
  }

  #next(matches) {
    return new Promise((resolve, reject) => {
      const late = setTimeout(() => reject(new Error(`nothing came that ${matches}`)), PATIENCE)
      this.#waiting.push({ matches, resolve: (event) => (clearTimeout(late), resolve(event)) })
    })
  }

  deltas(sessionID) {
    return this.seen.filter((e) => isDelta(e, sessionID)).map((e) => e.properties.delta)
  }

  types(sessionID) {
    return this.seen.filter((e) => sessionOf(e) === sessionID).map((e) => e.type)
  }
}

export const sessionOf = ({ properties: p }) => p.sessionID ?? p.part?.sessionID ?? p.info?.sessionID ?? p.info?.id
export const isDelta = (e, sessionID) => e.type === "message.part.updated" && Boolean(e.properties.delta) && sessionOf(e) === sessionID
export const isOf = (type, sessionID) => (e) => e.type === type && sessionOf(e) === sessionID
export const isIdle = (sessionID) => isOf("session.idle", sessionID)
