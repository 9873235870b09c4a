// Images that are built: layers of commands, their environment and secrets, failures, names, deletion.
package sdktests

import (
	"os"
	"strings"
	"testing"

	modal "github.com/modal-labs/modal-client/go"
)

// in runs a command in a sandbox of the image; what it says is the answer.
func in(t *testing.T, img *modal.Image, argv ...string) string {
	t.Helper()
	sb, err := client.Sandboxes.Create(ctx, app, img, nil)
	must(t, err)
	defer func() { _, _ = sb.Terminate(ctx, nil) }()
	r := run(t, sb, nil, argv...)
	if r.code != 0 {
		t.Fatalf("%v ended with %d: %s", argv, r.code, r.stderr)
	}
	return r.stdout
}

func build(t *testing.T, img *modal.Image) *modal.Image {
	t.Helper()
	built, err := img.Build(ctx, app, nil)
	must(t, err)
	return built
}

func TestImageLayers(t *testing.T) {
	img := image().DockerfileCommands([]string{"RUN echo one >/one", "ENV COLOR=blue", "WORKDIR /srv/x"}, nil).
		DockerfileCommands([]string{"RUN cat /one >two && echo $COLOR >>two"}, nil)
	equal(t, in(t, img, "sh", "-c", "cat two; pwd"), "one\nblue\n/srv/x\n")
}

func TestImageDefinitionsAreFoundAgain(t *testing.T) {
	commands := []string{"RUN echo " + unique("x") + " >/x"}
	a := build(t, image().DockerfileCommands(commands, nil))
	b := build(t, image().DockerfileCommands(commands, nil))
	c := build(t, image().DockerfileCommands(commands, &modal.ImageDockerfileCommandsParams{ForceBuild: true}))
	equal(t, a.ImageID, b.ImageID)
	if a.ImageID == c.ImageID {
		t.Fatal("a forced build is the same image")
	}
}

func TestImageSecrets(t *testing.T) {
	secret, err := client.Secrets.FromMap(ctx, map[string]string{"TOKEN": "s3cr3t"}, nil)
	must(t, err)
	params := &modal.ImageDockerfileCommandsParams{Secrets: []*modal.Secret{secret}, Env: map[string]string{"WHO": "me"}}
	img := image().DockerfileCommands([]string{`RUN echo "${#TOKEN} $WHO" >/seen`}, params)
	equal(t, in(t, img, "sh", "-c", "cat /seen; echo ${TOKEN:-none} ${WHO:-none}"), "6 me\nnone none\n")
}

func TestImageFailure(t *testing.T) {
	_, err := image().DockerfileCommands([]string{"RUN echo the reason; exit 7"}, nil).Build(ctx, app, nil)
	if err == nil || !strings.Contains(err.Error(), "exit code 7") || !strings.Contains(err.Error(), "the reason") {
		t.Fatalf("got %v", err)
	}
}

func TestImageNames(t *testing.T) {
	name := unique("image")
	a := build(t, image().DockerfileCommands([]string{"ENV A=" + unique("a")}, nil))
	b := build(t, image().DockerfileCommands([]string{"ENV A=" + unique("b")}, nil))
	must(t, a.Publish(ctx, name, nil))
	must(t, a.Publish(ctx, name+":v1", nil))
	must(t, b.Publish(ctx, name, nil))
	found, err := client.Images.FromName(ctx, name, nil)
	must(t, err)
	equal(t, found.ImageID, b.ImageID)
	found, err = client.Images.FromName(ctx, name+":v1", nil)
	must(t, err)
	equal(t, found.ImageID, a.ImageID)
	_, err = client.Images.FromName(ctx, unique("nobody"), nil)
	fails[modal.NotFoundError](t, err)
	must(t, client.Images.Delete(ctx, a.ImageID, nil))
	_, err = client.Images.FromID(ctx, a.ImageID, nil)
	fails[modal.NotFoundError](t, err)
	fails[modal.NotFoundError](t, client.Images.Delete(ctx, "im-0000000000000000000000", nil))
}

func TestImageByID(t *testing.T) {
	one := build(t, image().DockerfileCommands([]string{"RUN echo " + unique("x") + " >/x"}, nil))
	same, err := client.Images.FromID(ctx, one.ImageID, nil)
	must(t, err)
	two := build(t, same.DockerfileCommands([]string{"RUN cat /x >/y"}, nil))
	must(t, client.Images.Delete(ctx, one.ImageID, nil))
	equal(t, in(t, two, "cmp", "/x", "/y"), "")
}

func secretOf(t *testing.T, values map[string]string) *modal.Secret {
	t.Helper()
	secret, err := client.Secrets.FromMap(ctx, values, nil)
	must(t, err)
	return secret
}

func buildFails(t *testing.T, img *modal.Image, word string) {
	t.Helper()
	if _, err := img.Build(ctx, app, nil); err == nil || !strings.Contains(err.Error(), word) {
		t.Fatalf("got %v", err)
	}
}

func TestImageOfAmazon(t *testing.T) {
	ref := os.Getenv("QS_ECR") + "/team/" + unique("go") + ":1"
	keys := map[string]string{"AWS_ACCESS_KEY_ID": os.Getenv("QS_ECR_KEY"), "AWS_REGION": "eu-west-1", "AWS_SECRET_ACCESS_KEY": "another"}
	buildFails(t, client.Images.FromAwsEcr(ref, secretOf(t, keys), nil), "InvalidSignatureException")
	keys["AWS_SECRET_ACCESS_KEY"] = os.Getenv("QS_ECR_SECRET")
	build(t, client.Images.FromAwsEcr(ref, secretOf(t, keys), nil))
}

func TestImageOfGoogle(t *testing.T) {
	ref := os.Getenv("QS_GOOGLE") + "/p/" + unique("go") + ":1"
	bad := map[string]string{"SERVICE_ACCOUNT_JSON": `{"type": "service_account", "client_email": "x"}`}
	buildFails(t, client.Images.FromGcpArtifactRegistry(ref, secretOf(t, bad), nil), "private_key")
	good := map[string]string{"SERVICE_ACCOUNT_JSON": os.Getenv("QS_GOOGLE_KEY")}
	build(t, client.Images.FromGcpArtifactRegistry(ref, secretOf(t, good), nil))
}
