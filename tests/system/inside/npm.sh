# Packages made here and installed: their scripts, programs and lock files.
# as: root dev
# image: suites
cd "$(mktemp -d)"
export npm_config_audit=false npm_config_fund=false npm_config_update_notifier=false npm_config_offline=true npm_config_cache=$PWD/cache
mkdir dep app
cat >dep/package.json <<'C'
{"name": "dep", "version": "1.0.0", "bin": {"dep-bin": "cli.js"}, "scripts": {"postinstall": "node -e \"require('fs').writeFileSync('built', 'yes')\""}}
C
printf '#!/usr/bin/env node\nconsole.log("bin runs")\n' >dep/cli.js
echo 'module.exports = 42' >dep/index.js
(cd dep && npm pack --silent --pack-destination ..)
cd app
npm init -y >/dev/null
npm install ../dep-1.0.0.tgz
[ "$(node -p 'require("dep")')" = 42 ]
[ "$(npx dep-bin)" = "bin runs" ]
[ "$(cat node_modules/dep/built)" = yes ]
rm -r node_modules
npm ci
npm ls
[ "$(npm run --silent env | grep -c '^npm_lifecycle_event=env')" = 1 ]
