//! The faults that `job lint` and `template lint` find: a line each as they are found, or one JSON document.

use serde::Serialize;
use serde_json::json;

use super::exit::Exit;
use super::failure::Failure;
use super::output::Output;

/// What was found in files.
pub(crate) struct Findings {
    out: Output,
    looked_at: usize,
    questionable: usize,
    wrong: usize,
    /// All faults, where they are printed as a document.
    document: Vec<Finding>,
}

/// A fault of an object in a file.
#[derive(Debug, Serialize)]
pub(crate) struct Finding {
    pub(crate) file: String,
    /// The object's name; `None` if it has none.
    pub(crate) object: Option<String>,
    /// The path of the fault in the object.
    pub(crate) path: String,
    pub(crate) message: String,
    /// Whether the object may be meant so.
    pub(crate) questionable: bool,
}

impl Findings {
    pub(crate) fn new(out: Output) -> Self {
        Self { out, looked_at: 0, questionable: 0, wrong: 0, document: Vec::new() }
    }

    /// Counts an object that was looked at.
    pub(crate) fn look(&mut self) {
        self.looked_at += 1;
    }

    /// How many objects were looked at.
    pub(crate) fn looked_at(&self) -> usize {
        self.looked_at
    }

    /// Takes in a fault, and prints it if each is a line.
    ///
    /// # Errors
    /// If it cannot be printed.
    pub(crate) fn add(&mut self, finding: Finding) -> Result<(), Failure> {
        match finding.questionable {
            true => self.questionable += 1,
            false => self.wrong += 1,
        }
        if self.out.is_json() {
            self.document.push(finding);
            return Ok(());
        }
        let Finding { file, object, path, message, .. } = &finding;
        let object = object.as_deref().unwrap_or("(without a name)");
        self.out.foreign(&format!("{file}: {object}: {path}: {message}\n"))
    }

    /// Prints the document, or that there are no faults.
    ///
    /// # Errors
    /// With 2 if there is a fault that cannot be meant so; if nothing can be printed.
    pub(crate) fn end(self) -> Result<(), Failure> {
        let seen = match self.questionable {
            0 => format!("{} looked at", self.looked_at),
            questionable => format!("{questionable} questionable, {} looked at", self.looked_at),
        };
        if self.out.is_json() {
            let document = json!({"looked_at": self.looked_at, "faults": self.document});
            self.out.json(&document)?;
        }
        match self.wrong {
            0 if !self.out.is_json() => self.out.note(&format!("no faults, {seen}")),
            0 => {}
            1 => return Err(Failure::new(Exit::Usage, format!("1 fault, {seen}"))),
            wrong => return Err(Failure::new(Exit::Usage, format!("{wrong} faults, {seen}"))),
        }
        Ok(())
    }
}
