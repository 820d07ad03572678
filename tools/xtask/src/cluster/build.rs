//! Makes the programs of the cluster: unpacked, or built from source, once for each recipe.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Context;

use super::Place;
use super::debian::Archive;

/// The name of the cache. It has to be changed with anything here that changes what is built.
pub(super) const RECIPE: &str = "kubernetes-1.20.2-b";

const VERSION: &str = "v1.20.2";

/// The programs that are built from source.
const BUILT: [&str; 4] = ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet"];

/// Generated before, for the source is without it. All else that is generated is there: to see that it is up to date
/// took a quarter of the time.
const GENERATED: &str = "generated: ; $(MAKE) -f Makefile.generated_files CALLED_FROM_MAIN_MAKEFILE=1 \
                         pkg/generated/openapi/zz_generated.openapi.go";

/// The build tags, which leave out the code for clouds and for Docker.
const TAGS: &str = "-tags=providerless,dockerless";

/// The programs that are taken from packages, with their paths in them.
const TAKEN: [(&str, &str); 8] = [
    ("etcd", "usr/bin/etcd"),
    ("containerd", "usr/bin/containerd"),
    ("containerd-shim-runc-v2", "usr/bin/containerd-shim-runc-v2"),
    ("ctr", "usr/bin/ctr"),
    ("runc", "usr/sbin/runc"),
    ("busybox", "bin/busybox"),
    ("catatonit", "usr/bin/catatonit"),
    ("kubectl", "usr/bin/kubectl"),
];

/// The folder of the network plugins in their package.
const PLUGINS: &str = "usr/lib/cni";

const PACKAGES: [&str; 10] = [
    "etcd-server",
    "containerd",
    "runc",
    "containernetworking-plugins",
    "busybox-static",
    "catatonit",
    "kubernetes-client",
    "golang-1.19-go",
    "golang-1.19-src",
    "golang-github-modern-go-reflect2-dev",
];

/// Makes the programs, unless they are there.
pub(super) fn programs(place: &Place) -> anyhow::Result<()> {
    if place.programs.is_dir() {
        return Ok(());
    }
    eprintln!(
        "building Kubernetes {VERSION} from Debian's source package, once: about 3 minutes on two \
         cores; it is kept in {}",
        place.programs.display()
    );
    let work = place.programs.with_file_name("new");
    let _ = fs::remove_dir_all(&work);
    fs::create_dir_all(work.join("bin"))?;
    let archive = Archive::open(&work.join("apt"))?;
    let root = work.join("root");
    archive.unpack(&PACKAGES, &root)?;
    let source = work.join("source");
    archive.unpack_source("kubernetes", &source)?;
    kubernetes(&source, &root)?;
    for name in BUILT {
        move_file(&source.join("_output/bin").join(name), &work.join("bin").join(name))?;
    }
    for (name, path) in TAKEN {
        move_file(&root.join(path), &work.join("bin").join(name))?;
    }
    fs::rename(root.join(PLUGINS), work.join("plugins")).context("the network plugins")?;
    for folder in ["apt", "root", "source"] {
        fs::remove_dir_all(work.join(folder))?;
    }
    Ok(fs::rename(&work, &place.programs)?)
}

fn kubernetes(source: &Path, root: &Path) -> anyhow::Result<()> {
    // The vendored reflect2 walks maps by Go's internals as they were before 1.18: built by a later
    // Go, the API server dies as soon as a custom resource is applied.
    let vendored = source.join("vendor/github.com/modern-go/reflect2");
    fs::remove_dir_all(&vendored)?;
    let newer = root.join("usr/share/gocode/src/github.com/modern-go/reflect2");
    fs::rename(newer, &vendored).context("Debian's reflect2")?;
    let path = source.join(".go/src/k8s.io");
    fs::create_dir_all(&path)?;
    std::os::unix::fs::symlink("../../..", path.join("kubernetes"))?;
    let go = root.join("usr/lib/go-1.19");
    let mut folders = vec![go.join("bin")];
    folders.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    let mut generate = Command::new("make");
    generate.args(["--eval", GENERATED, "generated"]);
    let mut build = Command::new("bash");
    build.arg("hack/make-rules/build.sh").args(BUILT.map(|name| format!("cmd/{name}")));
    for command in [&mut generate, &mut build] {
        command
            .current_dir(path.join("kubernetes"))
            // The build asks the shell where it is: the link must show.
            .env("PWD", path.join("kubernetes"))
            .env("PATH", std::env::join_paths(&folders)?)
            .env("GOROOT", &go)
            .env("GOPATH", source.join(".go"))
            .env("GOCACHE", source.join(".cache"))
            // Garbage is collected seldom: there is memory enough.
            .env("GOGC", "800")
            .envs([("CGO_ENABLED", "0"), ("GO111MODULE", "off"), ("GOFLAGS", TAGS)])
            .envs([
                ("KUBE_GIT_VERSION", VERSION),
                ("KUBE_GIT_MAJOR", "1"),
                ("KUBE_GIT_MINOR", "20"),
            ])
            .envs([("KUBE_GIT_COMMIT", VERSION), ("KUBE_GIT_TREE_STATE", "archive")]);
        crate::run(command)?;
    }
    Ok(())
}

fn move_file(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::rename(from, to).with_context(|| format!("{} is not there", from.display()))
}
