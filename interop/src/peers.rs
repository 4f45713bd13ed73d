//! Peers that are libraries. A run builds a program for each of them once, and keeps the program in
//! `target/interop-peers/`.

use crate::cell::Check;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// A program that is built before the first scenario that needs it.
pub(crate) struct Built {
    build: Box<dyn Fn() -> Result<Vec<OsString>, String> + Send + Sync>,
    /// The command line that starts the program.
    words: OnceLock<Result<Vec<OsString>, String>>,
}

impl Built {
    /// Makes the value of a program. When a scenario needs the program, this value calls `build`, which builds the
    /// program. `build` returns the command line that starts the program, or an error that contains the command that
    /// the user must type.
    fn new(build: impl Fn() -> Result<Vec<OsString>, String> + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { build: Box::new(build), words: OnceLock::new() })
    }

    /// Returns the command that starts the program. The first call builds the program. Other calls wait until the build
    /// has ended.
    pub(crate) fn command(&self) -> Result<Command, String> {
        // One build at a time: builds in parallel would only slow each other down.
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let make = || {
            let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
            (self.build)()
        };
        let words = self.words.get_or_init(make).clone()?;
        let mut words = words.into_iter();
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words);
        Ok(command)
    }

    /// Builds the program. This is the first step of a scenario.
    pub(crate) fn ready(&self) -> Check {
        Ok(self.command().map(drop)?)
    }
}

/// Runs the program with the argument `version`. Checks that it prints the version that is in the result table.
pub(crate) fn is_version(program: &Built, version: &str) -> Check {
    let output = program.command()?.arg("version").output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let says = text.trim().strip_prefix("version ").unwrap_or_default();
    if says.split_whitespace().any(|word| word == version) {
        return Ok(());
    }
    Err(format!("it prints {:?}", text.trim()).into())
}

/// The directory in which programs are built.
#[derive(Clone)]
pub(crate) struct Places {
    target: PathBuf,
}

impl Places {
    pub(crate) fn new(target: &Path) -> Self {
        Self { target: target.to_owned() }
    }

    /// Creates the directory for the files that are built for `peer`. Returns its path.
    pub(crate) fn made(&self, peer: &str) -> Result<PathBuf, String> {
        let directory = self.target.join("interop-peers").join(peer);
        std::fs::create_dir_all(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        Ok(directory)
    }

    /// Makes a program from one C file of `interop/peers`. The program uses `libraries`, which must be installed.
    pub(crate) fn c_peer(
        &self,
        name: &'static str,
        header: (&'static str, &'static str),
        libraries: &'static [&'static str],
    ) -> Arc<Built> {
        self.c_program(name, source(&format!("{name}.c")), header, libraries)
    }

    /// Makes a program from the C file `file`. The program uses `libraries`, which must be installed.
    pub(crate) fn c_program(
        &self,
        name: &'static str,
        file: PathBuf,
        header: (&'static str, &'static str),
        libraries: &'static [&'static str],
    ) -> Arc<Built> {
        let places = self.clone();
        Built::new(move || {
            tools(&[("cc", "gcc libc6-dev"), header])?;
            let program = places.made(name)?.join(name);
            let mut compiler = Command::new("cc");
            compiler.args(["-std=c11", "-D_DEFAULT_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1"]);
            compiler.arg(&file).arg("-o").arg(&program);
            step(compiler.args(libraries))?;
            Ok(vec![program.into()])
        })
    }

    /// Makes a Java program from a file of this project, the common file `Things.java`, and the libraries that the
    /// `pom.xml` in the same directory names.
    pub(crate) fn java_peer(&self, name: &'static str) -> Arc<Built> {
        let places = self.clone();
        Built::new(move || {
            tools(&[("javac", "default-jdk-headless"), ("java", "default-jdk-headless"), ("mvn", "maven")])?;
            places.java_program(name, "Peer", |compiler| {
                compiler.arg("-sourcepath").arg(source(name)).arg(source(name).join("Peer.java"));
                compiler.arg(source("californium/Things.java"));
            })
        })
    }

    /// Makes a Java program from one file and the libraries that the `pom.xml` of the peer `name` names.
    pub(crate) fn java_example(&self, name: &'static str, file: PathBuf) -> Arc<Built> {
        let places = self.clone();
        Built::new(move || {
            tools(&[("javac", "default-jdk-headless"), ("java", "default-jdk-headless"), ("mvn", "maven")])?;
            let class = file.file_stem().unwrap_or_default().to_string_lossy();
            places.java_program(name, &class, |compiler| {
                compiler.arg(&file);
            })
        })
    }

    /// Fetches the libraries that the `pom.xml` of the peer `name` names, and compiles the program. Returns the command
    /// line that starts `class`.
    fn java_program(
        &self,
        name: &str,
        class: &str,
        sources: impl FnOnce(&mut Command),
    ) -> Result<Vec<OsString>, String> {
        let place = self.made(name)?;
        let (libraries, classes, complete) = (place.join("lib"), place.join("classes"), place.join("complete"));
        let pom = std::fs::read_to_string(source(name).join("pom.xml")).map_err(|error| error.to_string())?;
        // Another pom is another set of libraries.
        if std::fs::read_to_string(&complete).ok().as_ref() != Some(&pom) {
            let _ = std::fs::remove_dir_all(&libraries);
            let mut maven = Command::new("mvn");
            maven.args(["-q", "-B", "dependency:copy-dependencies"]).current_dir(source(name));
            step(maven.arg(format!("-DoutputDirectory={}", libraries.display())))?;
            std::fs::write(&complete, pom).map_err(|error| error.to_string())?;
        }
        let mut compiler = Command::new("javac");
        compiler.args(["-Xlint:all", "-Werror", "-cp"]).arg(libraries.join("*")).arg("-d").arg(&classes);
        sources(&mut compiler);
        step(&mut compiler)?;
        let path = format!("{}:{}/*", classes.display(), libraries.display());
        // The program runs for a second, in which the second compiler costs more time than it saves.
        Ok(["java", "-XX:TieredStopAtLevel=1", "-cp", &path, class].map(OsString::from).to_vec())
    }

    /// Makes a Go program from files of this project. Its `go.sum` names the modules.
    pub(crate) fn go_peer(&self, name: &'static str) -> Arc<Built> {
        self.go_program(name, name, ".")
    }

    /// Makes a Go program from the package `package`, which the Go module in `folder` requires.
    pub(crate) fn go_program(&self, folder: &'static str, name: &'static str, package: &'static str) -> Arc<Built> {
        let places = self.clone();
        Built::new(move || {
            tools(&[("go", "golang-go, 1.24 or newer")])?;
            let program = places.made(folder)?.join(name);
            let mut go = Command::new("go");
            go.args(["build", "-mod=readonly", "-o"]).arg(&program).arg(package).current_dir(source(folder));
            step(go.env("GOTOOLCHAIN", "local").env("CGO_ENABLED", "0").env_remove("GOFLAGS"))?;
            Ok(vec![program.into()])
        })
    }

    /// Makes a Rust program from files of this project, in its own workspace.
    pub(crate) fn cargo_peer(
        &self,
        name: &'static str,
        package: &'static str,
        needs: &'static [(&'static str, &'static str)],
    ) -> Arc<Built> {
        let places = self.clone();
        Built::new(move || {
            tools(needs)?;
            let target = places.made(name)?;
            let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
            let mut build = Command::new(&cargo);
            build.args(["build", "--release", "--locked", "--quiet", "--target-dir"]).arg(&target);
            step(build.current_dir(source(name)))?;
            Ok(vec![target.join("release").join(package).into()])
        })
    }

    /// Makes a Python program from a file of this project. The program uses one package of the Python package index,
    /// which is installed in a separate virtual environment.
    pub(crate) fn python_peer(&self, file: &'static str, package: &'static str) -> Arc<Built> {
        let places = self.clone();
        Built::new(move || {
            tools(&[("python3", "python3")])?;
            let place = places.made("python")?.join(package);
            let python = place.join("bin/python");
            if !place.join("complete").exists() {
                step(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&place))
                    .map_err(|why| format!("{why}; or: sudo apt-get install python3-venv"))?;
                step(Command::new(&python).args(["-m", "pip", "install", "--quiet", package]))?;
                std::fs::write(place.join("complete"), "").map_err(|error| error.to_string())?;
            }
            Ok(vec![python.into(), source(file).into()])
        })
    }

    /// Builds a program from the directory `bench/peers`. The benchmarks use this program, too. It can exchange
    /// datagrams over a socket.
    pub(crate) fn bench_peer(&self, name: &'static str, needs: &'static [(&'static str, &'static str)]) -> Arc<Built> {
        // The same directory as that of `bench/setup.sh`, so that nothing is built twice.
        let target = self.target.join("bench-peers");
        Built::new(move || {
            tools(needs)?;
            let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
            let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench/peers");
            // Cargo finds the settings of that directory only if it runs there. A fetch also brings sources that are no
            // dependency of a build.
            step(Command::new(&cargo).args(["fetch", "--locked", "--quiet"]).current_dir(&directory))?;
            let package = format!("tegmen-bench-{name}");
            let mut build = Command::new(&cargo);
            build.args(["build", "--release", "--locked", "--quiet", "--package", &package, "--target-dir"]);
            step(build.arg(&target).current_dir(&directory))?;
            Ok(vec![target.join("release").join(package).into()])
        })
    }
}

/// Returns the path of a file of `examples/agent`.
pub(crate) fn agent_example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/agent").join(name)
}

/// Returns the path of a file or folder of `interop/peers`.
pub(crate) fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers").join(path)
}

/// Checks that all programs of the pairs `(program, package)` are installed. The error names the first missing program,
/// and the command that installs it. A name that begins with `/` is the path of a file, which must exist.
pub(crate) fn tools(needs: &[(&str, &str)]) -> Result<(), String> {
    let there = |name: &str| match name {
        LIBCLANG => has_libclang(),
        file if file.starts_with('/') => Path::new(file).exists(),
        program => installed(program),
    };
    match needs.iter().find(|(program, _)| !there(program)) {
        None => Ok(()),
        Some((program, package)) => Err(format!("{program} is not installed: sudo apt-get install {package}")),
    }
}

/// The name that stands for libclang in the pairs of [`tools`]. libclang is a library that reads C headers during a
/// build.
pub(crate) const LIBCLANG: &str = "libclang";

fn has_libclang() -> bool {
    let entries = |directory: &Path| std::fs::read_dir(directory).into_iter().flatten().flatten();
    let holds = |directory: PathBuf| {
        entries(&directory).any(|entry| entry.file_name().to_string_lossy().starts_with("libclang"))
    };
    let lib = Path::new("/usr/lib");
    std::env::var_os("LIBCLANG_PATH").is_some()
        || holds("/usr/lib64".into())
        || entries(lib).any(|entry| holds(entry.path()) || holds(entry.path().join("lib")))
}

/// Returns true if `program` is in a directory of `PATH`.
pub(crate) fn installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// Runs one step of a build. The error contains the command that the user can type, and the first line with "error"
/// that the step printed. If there is no such line, the error contains the last line.
pub(crate) fn step(command: &mut Command) -> Result<(), String> {
    let line = || {
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
        let place = command.get_current_dir().map_or(String::new(), |place| format!("cd {} && ", place.display()));
        place + &words.join(" ")
    };
    let line = line();
    let output = command.stdin(std::process::Stdio::null()).output();
    let output = output.map_err(|error| format!("it cannot be built: {line}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let told = [String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout)].concat();
    let is_error = |line: &&str| line.to_ascii_lowercase().contains("error");
    let first = told.lines().find(is_error).or_else(|| told.lines().rfind(|line| !line.trim().is_empty()));
    Err(format!("it cannot be built; type: {line} ({})", first.unwrap_or("it printed nothing").trim()))
}
