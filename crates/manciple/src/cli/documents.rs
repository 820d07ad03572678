//! Prints completions and man pages, made from the command line itself, and the definitions of Manciple's resources.

use std::io::{self, Write as _};
use std::path::Path;

use clap::CommandFactory as _;
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use kubernetes::templates;

use super::args::{Cli, CrdsArgs, ENVIRONMENT};
use super::exit;
use super::failure::Failure;
use super::output::written;

/// Prints the completions of a shell.
pub(crate) fn completions(shell: Shell) -> Result<(), Failure> {
    // Into memory first: the generator does not expect that a pipe may close.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "manciple", &mut script);
    print(&script)
}

/// Prints the man page, or writes a page for each command into a directory.
pub(crate) fn man(dir: Option<&Path>) -> Result<(), Failure> {
    let mut command = Cli::command();
    command.build();
    let Some(dir) = dir else {
        return print(&page(&command, "manciple"));
    };
    std::fs::create_dir_all(dir).map_err(|error| unwritten(dir, &error))?;
    save(dir, &command, "manciple")
}

/// Writes the page of a command, and those of its subcommands.
fn save(dir: &Path, command: &clap::Command, name: &str) -> Result<(), Failure> {
    let path = dir.join(format!("{name}.1"));
    std::fs::write(&path, page(command, name)).map_err(|error| unwritten(&path, &error))?;
    let visible = command.get_subcommands().filter(|command| !command.is_hide_set());
    for command in visible.filter(|command| command.get_name() != "help") {
        save(dir, command, &format!("{name}-{}", command.get_name()))?;
    }
    Ok(())
}

fn unwritten(path: &Path, error: &io::Error) -> Failure {
    Failure::usage(format!("cannot write {}: {error}", path.display()))
}

/// Prints the definitions of Manciple's resources, or of templates, as YAML.
pub(crate) fn crds(args: &CrdsArgs) -> Result<(), Failure> {
    let definitions = match args.templates {
        true => templates::names::Kind::ALL.map(templates::definition).to_vec(),
        false => kubernetes::definitions(),
    };
    let mut text = String::new();
    for definition in definitions {
        let definition = serde_saphyr::to_string(&definition);
        text.push_str("---\n");
        text.push_str(&definition.map_err(|error| Failure::not_printed(&error))?);
    }
    print(text.as_bytes())
}

fn print(text: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    written(stdout.write_all(text).and_then(|()| stdout.flush()))
}

fn page(command: &clap::Command, name: &str) -> Vec<u8> {
    let command = command.clone().display_name(name.to_owned()).after_help("");
    let subcommands = command.has_subcommands();
    let man = Man::new(command).title(name);
    let mut text = Vec::new();
    // Writing to memory does not fail.
    let _ = man.render_title(&mut text);
    let _ = man.render_name_section(&mut text);
    let _ = man.render_synopsis_section(&mut text);
    let _ = man.render_description_section(&mut text);
    let _ = man.render_options_section(&mut text);
    if subcommands {
        let _ = man.render_subcommands_section(&mut text);
    }
    let mut rest = Roff::new();
    rest.control("SH", ["ENVIRONMENT"]);
    for (name, meaning) in ENVIRONMENT {
        rest.control("TP", []).text([bold(*name)]).text([roman(*meaning)]);
    }
    rest.control("SH", ["EXIT STATUS"]);
    for (code, meaning) in exit::meanings() {
        rest.control("TP", []).text([bold(code.to_string())]).text([roman(meaning)]);
    }
    let _ = rest.to_writer(&mut text);
    text
}
