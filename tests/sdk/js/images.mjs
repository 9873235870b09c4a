/* images.mjs - images that are built: layers of commands, their environment and secrets, failures, names, deletion. */
import { app, assert, client, generation, image, long, main, rejects, run, test, unique, version, withSandbox } from "./harness.mjs";

const output = (of, ...argv) => withSandbox({}, async (sb) => {
    const r = await run(sb, argv);
    assert.equal(r.code, 0, r.stderr);
    return r.stdout;
}, { of });

test("layers of commands", async () => {
    const img = image.dockerfileCommands(["RUN echo one >/one", "ENV COLOR=blue", "WORKDIR /srv/x"])
        .dockerfileCommands(["RUN cat /one >two && echo $COLOR \\", "  >>two", "USER 1000"]);
    assert.equal(await output(img, "sh", "-c", "cat two; pwd; id -u"), "one\nblue\n/srv/x\n1000\n");
});

test("the same definition is the same image", async () => {
    const commands = [`RUN echo ${unique("x")} >/x`];
    const a = await image.dockerfileCommands(commands).build(app);
    const b = await image.dockerfileCommands(commands).build(app);
    const c = await image.dockerfileCommands(commands, { forceBuild: true }).build(app);
    assert.match(a.imageId, /^im-[0-9A-Za-z]{22}$/);
    assert.equal(a.imageId, b.imageId);
    assert.notEqual(a.imageId, c.imageId);
});

test("secrets and variables of a layer are for its commands alone", async () => {
    const secret = await client.secrets.fromObject({ TOKEN: "s3cr3t" });
    const img = image.dockerfileCommands(['RUN echo "${#TOKEN} $WHO" >/seen'], { secrets: [secret], env: { WHO: "me" } });
    assert.equal(await output(img, "sh", "-c", "cat /seen; echo ${TOKEN:-none} ${WHO:-none}"), "6 me\nnone none\n");
});

test("a failed command says why", async () => {
    const e = await rejects(image.dockerfileCommands(["RUN echo the reason; exit 7"]).build(app), null, /exit code 7/);
    assert.match(e.message, /the reason/);
});

test("a failed command leaves what was built before", async () => {
    const one = image.dockerfileCommands([`RUN echo ${unique("good")} >/good`]);
    await rejects(one.dockerfileCommands(["RUN false"]).build(app), null, /exit code 1/);
    assert.match(await output(one, "cat", "/good"), /^good-/);
});

test("commands that are no Dockerfile", async () => {
    await rejects(image.dockerfileCommands(["RUNN true"]).build(app), null, /RUNN/);
});

test("a copy out of another image", async () => {
    const img = image.dockerfileCommands(["COPY --from=base /etc/debian_version /version", "COPY --from=base /etc/debian_version /a/"]);
    assert.match(await output(img, "sh", "-c", "cmp /version /a/debian_version && cat /version"), /^1\d\.\d+/);
});

test("an image is published, found, moved and deleted", async () => {
    const name = unique("image");
    const a = await image.dockerfileCommands([`ENV A=${unique("a")}`]).build(app);
    const b = await image.dockerfileCommands([`ENV A=${unique("b")}`]).build(app);
    await a.publish(name);
    await a.publish(`${name}:v1`);
    assert.equal((await client.images.fromName(name)).imageId, a.imageId);
    await b.publish(name);
    assert.equal((await client.images.fromName(name)).imageId, b.imageId);
    assert.equal((await client.images.fromName(`${name}:v1`)).imageId, a.imageId);
    const top = (await client.images.fromName(name)).dockerfileCommands(["RUN echo top >/top"]);
    assert.equal(await output(top, "cat", "/top"), "top\n");
    await rejects(client.images.fromName(unique("nobody")), "NotFoundError");
    await client.images.delete(a.imageId);
    await rejects(client.images.fromId(a.imageId), "NotFoundError", /Could not find image with ID/);
    await rejects(client.images.fromName(`${name}:v1`), "NotFoundError");
});

test("a deleted image leaves those that were built on it", async () => {
    const one = await image.dockerfileCommands([`RUN echo ${unique("x")} >/x`]).build(app);
    const two = await (await client.images.fromId(one.imageId)).dockerfileCommands(["RUN cat /x >/y"]).build(app);
    await client.images.delete(one.imageId);
    assert.match(await output(two, "cat", "/x", "/y"), /^(x-\w+\n)\1$/);
});

long("twenty layers", async () => {
    let img = image;
    for (let i = 0; i < 20; i++) {
        img = img.dockerfileCommands([`RUN echo ${i} >>/count`]);
    }
    assert.equal(await output(img, "sh", "-c", "wc -l </count"), "20\n");
});

test("an image under way is waited for by everybody", async () => {
    const commands = [`RUN sleep 2; echo ${unique("x")} >/x`];
    const made = await Promise.all([1, 2, 3].map(() => image.dockerfileCommands(commands).build(app)));
    assert.equal(new Set(made.map((m) => m.imageId)).size, 1);
});

test("files from elsewhere", async () => {
    const host = process.env.QS_ODD;
    const img = image.dockerfileCommands([`ADD --chmod=644 http://${host}/v2/zstd/manifests/1 /m/`]);
    assert.match(await output(img, "sh", "-c", "stat -c %a /m/1; cat /m/1"), /^644\n\{"schemaVersion": 2/);
    const sum = `--checksum=sha256:${"0".repeat(64)}`;
    await rejects(image.dockerfileCommands([`ADD ${sum} http://${host}/v2/zstd/manifests/1 /m`]).build(app), null, /the checksum is not that/);
    await rejects(image.dockerfileCommands([`ADD http://127.0.0.2:${host.split(":")[1]}/x /m`]).build(app), null, /network policy/);
    await rejects(image.dockerfileCommands(["ADD https://example.com/a.git /m"]).build(app), null, /git are not fetched/);
});

test("a registry of Amazon", async () => {
    const ref = `${process.env.QS_ECR}/team/js-${version}-${generation}:1`;
    const keys = { AWS_ACCESS_KEY_ID: process.env.QS_ECR_KEY, AWS_REGION: "eu-west-1" };
    const bad = await client.secrets.fromObject({ ...keys, AWS_SECRET_ACCESS_KEY: "another" });
    await rejects(client.images.fromAwsEcr(ref, bad).build(app), null, /InvalidSignatureException/);
    const good = await client.secrets.fromObject({ ...keys, AWS_SECRET_ACCESS_KEY: process.env.QS_ECR_SECRET });
    assert.match((await client.images.fromAwsEcr(ref, good).build(app)).imageId, /^im-/);
});

test("a registry of Google", async () => {
    const ref = `${process.env.QS_GOOGLE}/p/js-${version}-${generation}:1`;
    const bad = await client.secrets.fromObject({ SERVICE_ACCOUNT_JSON: '{"type": "service_account", "client_email": "x"}' });
    await rejects(client.images.fromGcpArtifactRegistry(ref, bad).build(app), null, /private_key/);
    const good = await client.secrets.fromObject({ SERVICE_ACCOUNT_JSON: process.env.QS_GOOGLE_KEY });
    assert.match((await client.images.fromGcpArtifactRegistry(ref, good).build(app)).imageId, /^im-/);
});

await main();
