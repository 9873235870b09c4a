# A registry by name: a package and what it needs.
cd "$(mktemp -d)"
export npm_config_audit=false npm_config_fund=false npm_config_update_notifier=false npm_config_cache=$PWD/cache
export npm_config_registry=https://npm.farm.test/
npm init -y >/dev/null
npm install farm-thing
[ "$(node -p 'require("farm-thing")')" = 42 ]
[ "$(ls node_modules)" = "$(printf 'farm-part\nfarm-thing')" ]
rm -rf node_modules cache
npm ci
[ "$(npm view farm-part version)" = 2.0.0 ]
! npm view no-such-thing version
