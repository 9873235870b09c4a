# A repository of the test alone: its index, a package, its source of names (apt asks for SRV records).
cd "$(mktemp -d)"
export DEBIAN_FRONTEND=noninteractive
top=$PWD
mkdir -p lists/partial archives/partial
for scheme in https http; do
    echo "deb [trusted=yes] $scheme://deb.farm.test ./" >sources.list
    printf 'Dir::Etc::sourcelist "%s/sources.list";\nDir::Etc::sourceparts "/nonexistent";\nDir::State::lists "%s/lists";\nDir::Cache::archives "%s/archives";\nAPT::Sandbox::User "root";\n' \
        "$top" "$top" "$top" >apt.conf
    export APT_CONFIG=$top/apt.conf
    apt-get -q update
    [ "$(apt-cache policy farm-thing | grep -c "$scheme://deb.farm.test")" = 1 ]
    apt-get -q -y install farm-thing
    [ "$(wc -c </opt/farm-thing)" = 3000000 ]
    apt-get -q -y purge farm-thing
    rm -rf lists/* archives/*
    mkdir -p lists/partial archives/partial
done
