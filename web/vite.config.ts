import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import type { Plugin } from "vite";
import { defineConfig } from "vitest/config";

/** Where the program puts the document of a report. */
const PLACE = "{{REPORT}}";
/** Packages whose code is in the page. */
const BUNDLED = ["preact", "uplot"];

/** The licences of the packages in the page, which ask to be kept with it: each text once, below all who give it. */
function licences(): string {
  const holders = new Map<string, string[]>();
  for (const name of BUNDLED) {
    const folder = `node_modules/${name}`;
    const { version } = JSON.parse(readFileSync(`${folder}/package.json`, "utf8")) as { version: string };
    const licence = readFileSync(`${folder}/LICENSE`, "utf8");
    const [copyright = ""] = /^Copyright .*$/m.exec(licence) ?? [];
    // Their lines are broken at different places.
    const paragraphs = licence
      .replace(copyright, "")
      .trim()
      .split(/\n\s*\n/);
    const text = paragraphs.map((lines) => lines.trim().replace(/\s+/g, " ")).filter(Boolean);
    const key = text.join("\n\n");
    holders.set(key, [...(holders.get(key) ?? []), `${name} ${version}: ${copyright}`]);
  }
  return [...holders].map(([text, names]) => `${names.join("\n")}\n\n${text}`).join("\n\n\n");
}

/** Puts script and styles into the page, and allows the browser to run these and nothing else. */
function onePage(): Plugin {
  return {
    name: "one-page",
    enforce: "post",
    generateBundle(_, bundle) {
      let script = "";
      let style = "";
      let page = "";
      for (const [name, file] of Object.entries(bundle)) {
        if (file.type === "chunk") script += file.code;
        else if (name.endsWith(".css")) style += file.source.toString();
        else if (name.endsWith(".html")) page = file.source.toString();
        delete bundle[name];
      }
      // Nothing in the script may end the element that it stands in, or open a comment in it.
      script = script.trim().replaceAll("</script", "<\\/script").replaceAll("<!--", "<\\!--");
      style = style.trim();
      const hash = (text: string) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
      const policy = `default-src 'none'; script-src ${hash(script)}; style-src ${hash(style)}; base-uri 'none'; form-action 'none'`;
      page = page
        .replace(/\s*<script type="module"[^>]*><\/script>/g, "")
        .replace(/\s*<link rel="(stylesheet|modulepreload)"[^>]*>/g, "")
        .replace("{{POLICY}}", policy)
        .replace("</head>", () => `<style>${style}</style>\n</head>`)
        .replace("</body>", () => `<script>${script}</script>\n</body>`);
      if (page.split(PLACE).length !== 2) throw new Error(`${PLACE} must stand in the page once`);
      this.emitFile({ type: "asset", fileName: "report.html", source: page });
    },
  };
}

/** In development, the page draws the document that the variable REPORT names. */
function sample(): Plugin {
  return {
    name: "sample",
    apply: "serve",
    transformIndexHtml(html) {
      const path = process.env["REPORT"];
      const document = path ? readFileSync(path, "utf8").replaceAll("<", "\\u003c") : "null";
      return html.replace(PLACE, () => document).replace(/\s*<meta http-equiv="Content-Security-Policy"[^>]*>/, "");
    },
  };
}

export default defineConfig({
  base: "./",
  define: { LICENCES: JSON.stringify(licences()) },
  esbuild: { jsx: "automatic", jsxImportSource: "preact", legalComments: "none" },
  plugins: [onePage(), sample()],
  build: {
    target: "es2020",
    modulePreload: false,
    cssCodeSplit: false,
    rollupOptions: { output: { format: "iife" } },
  },
  test: { include: ["test/**/*.test.{ts,tsx}"] },
});
