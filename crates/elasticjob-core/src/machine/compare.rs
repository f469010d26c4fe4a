//! How the configuration of this start differs from the stored one: reported when it joins and at each change, and published
//! for `explain` and `job show`.

use super::memory::{Life, Step};
use super::types::Effects;
use super::{JobEvent, JobMachine, StepResult};
use crate::query::{Answer, Query};
use crate::time::Timestamp;
use crate::tree::{Node, Op, Reason};
use crate::wire::{Difference, JobDocument, Overwrite};

/// How the configuration of this start differs from the stored one.
#[derive(Clone, Debug, Default)]
pub(super) struct Comparison {
    /// The differences that were reported last.
    pub(super) found: Vec<Difference>,
    /// The data of the node `applied/<id>` of this instance in this session; `None` if it does not exist.
    pub(super) published: Option<String>,
    /// What a start applied last, for `overwrite: changed`; `None` until it was read.
    pub(super) applied: Option<Option<Node>>,
}

impl JobMachine {
    /// What a start applied last must be known before one with `overwrite: changed` joins. Returns `true` while it is read.
    pub(super) fn read_applied(&mut self, out: &mut Effects) -> bool {
        let is_needed = self.setup.overwrite == Overwrite::Changed && !self.has_joined;
        if !is_needed || self.comparison.applied.is_some() {
            return false;
        }
        let query = Query::Node(self.path.applied());
        self.read(Step::ReadApplied, vec![query], out)
    }

    pub(super) fn applied_read(&mut self, result: StepResult) {
        if let StepResult::Answers(answers) = result {
            self.comparison.applied = Some(answers.first().and_then(Answer::node).cloned());
        }
    }

    /// The document that a start applied last.
    pub(super) fn applied(&self) -> Option<JobDocument> {
        let node = self.comparison.applied.as_ref()?.as_ref()?;
        JobDocument::parse(&node.data).ok()
    }

    /// Notes what this start applies, for the next one.
    pub(super) fn applied_ops(&self, ops: &mut Vec<Op>) {
        if self.setup.overwrite != Overwrite::Changed || self.has_joined {
            return;
        }
        let (path, data) = (self.path.applied(), self.setup.document.to_yaml().into_bytes());
        match self.comparison.applied.as_ref().and_then(Option::as_ref) {
            None => ops.push(Op::create(path, data)),
            Some(node) if node.data.as_ref() == data => {}
            Some(node) => ops.push(Op::Set { path, data, version: Some(node.version) }),
        }
    }

    /// Called when this instance has joined, and when the stored configuration may have changed since.
    pub(super) fn compare(&mut self, out: &mut Effects) {
        let Some(node) = self.state.config.as_ref().filter(|_| self.has_joined) else { return };
        // What cannot be read is reported as that.
        let Ok(stored) = JobDocument::parse(&node.data) else { return };
        let found = self.setup.document.differences(&stored);
        if found == self.comparison.found {
            return;
        }
        match found.is_empty() {
            true => out.report(JobEvent::SameAsStored),
            false => {
                let merges = self.setup.overwrite == Overwrite::Changed;
                out.report(JobEvent::DiffersFromStored { differences: found.clone(), merges });
            }
        }
        self.comparison.found = found;
    }

    /// Reports the differences once more, although they are the same.
    pub(super) fn compare_again(&mut self, out: &mut Effects) {
        self.comparison.found.clear();
        self.compare(out);
    }

    /// Rule: publishes how this start differs, in a node that is deleted with the session.
    pub(super) fn publish_differences(&mut self, _now: Timestamp, out: &mut Effects) -> bool {
        let found = &self.comparison.found;
        let text = (!found.is_empty()).then(|| Difference::to_text(found));
        if self.life != Life::Joined || text == self.comparison.published {
            return false;
        }
        let path = self.path.applied_by(self.id());
        let ops = match (&text, &self.comparison.published) {
            (None, _) => vec![Op::delete(path)],
            // One of an earlier session is replaced: it would go with that one.
            (Some(text), Some(old)) if old.is_empty() => {
                vec![Op::delete(path.clone()), Op::ephemeral(path, text.as_str())]
            }
            (Some(text), Some(_)) => vec![Op::set(path, text.as_str())],
            (Some(text), None) => vec![Op::Ensure(self.path.applied()), Op::ephemeral(path, text.as_str())],
        };
        self.commit(Step::Publish { text }, ops, out)
    }

    pub(super) fn published(&mut self, now: Timestamp, text: Option<String>, result: StepResult, out: &mut Effects) {
        match result {
            StepResult::Committed { .. } => self.comparison.published = text,
            StepResult::Refused(refusal) => {
                self.comparison.published = match refusal.reason {
                    Reason::Exists => Some(String::new()), // one of an earlier session
                    Reason::Missing | Reason::NotEmpty | Reason::Version => None,
                    Reason::Forbidden => text, // the right is lacking: asking again is vain
                };
            }
            StepResult::Unknown => {
                self.comparison.published = Some(String::new());
                self.look_again(now, out);
            }
            StepResult::Failed | StepResult::Answers(_) => self.pause(now),
        }
    }

    /// The node that goes when the job leaves.
    pub(super) fn unpublish(&self, ops: &mut Vec<Op>) {
        if self.comparison.published.is_some() {
            ops.push(Op::delete(self.path.applied_by(self.id())));
        }
    }
}

impl Comparison {
    /// A new session has no nodes of the one before.
    pub(super) fn session_renewed(&mut self) {
        self.published = None;
        self.applied = None;
    }
}
