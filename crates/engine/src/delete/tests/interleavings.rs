//! What holds however requests, answers, watches, timers and other clients interleave.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;

use super::*;

/// How the machine's watches learn of changes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    /// They see each event.
    Events,
    /// They list now and then, because they poll or had a gap, and miss what exists only in between.
    Lists,
    /// They read the objects that they know.
    Reads,
}

/// A small API server with three objects, and all that is on its way between it and the machine.
struct World {
    objects: BTreeMap<String, Observed>,
    /// Query 0 shows every object, query 1 those with the label `extra`; each lags behind on its own.
    watches: [VecDeque<Change>; 2],
    mode: Mode,
    /// What a watch that polls has seen, by name.
    known: [BTreeMap<String, Observed>; 2],
    requests: Vec<Request>,
    answers: Vec<Answer>,
    timers: Vec<Timer>,
    /// How many times other clients and failures may still interfere.
    mischief: usize,
    created: usize,
    /// The version of the object that was changed last.
    version: usize,
    /// The objects whose DELETE the API server has answered, or carried out.
    requested: BTreeSet<Uid>,
    /// An object was created after the API server answered the last list.
    created_since_list: bool,
    refused: bool,
    stopped: bool,
    gone: usize,
    appeared: usize,
}

/// What can happen next.
enum Step {
    Watch(usize),
    Poll(usize),
    Serve(usize),
    Answer(usize),
    RemoveFinalizers(String),
    Expire(usize),
    /// The API server carries a request out, or not, and the answer is a failure.
    Fail(usize, bool),
    Refuse(usize),
    /// The fence stops a request after Ctrl-C.
    Prevent(usize),
    /// Another client creates an object, in place of the one of that name.
    Create(&'static str, &'static str),
    /// Another client annotates an object, so that it is not deleted.
    Keep(&'static str),
    Stop,
}

impl World {
    fn new(mode: Mode) -> Self {
        let first = |text| Observed { resource_version: "1".to_owned(), ..observed(text) };
        let objects = ["a-1 ours", "b-1 ours x", "c-1 extra x"].map(first);
        let objects: BTreeMap<_, _> = objects.into_iter().map(|object| (object.name.clone(), object)).collect();
        let extra = objects.clone().into_iter().filter(|(_, object)| is_extra(object)).collect();
        Self {
            known: [objects.clone(), extra],
            objects,
            watches: Default::default(),
            mode,
            requests: Vec::new(),
            answers: Vec::new(),
            timers: Vec::new(),
            mischief: 6,
            created: 1,
            version: 1,
            requested: BTreeSet::new(),
            created_since_list: false,
            refused: false,
            stopped: false,
            gone: 0,
            appeared: 0,
        }
    }

    /// Returns what can happen next: first what must happen in the end, then mischief.
    fn steps(&self) -> (Vec<Step>, Vec<Step>) {
        let mut steps: Vec<_> = (0..2).filter(|at| !self.watches[*at].is_empty()).map(Step::Watch).collect();
        steps.extend((0..2).filter(|at| self.mode != Mode::Events && !self.poll(*at).is_empty()).map(Step::Poll));
        steps.extend((0..self.requests.len()).map(Step::Serve));
        steps.extend((0..self.answers.len()).map(Step::Answer));
        steps.extend((0..self.requests.len()).filter(|_| self.stopped).map(Step::Prevent));
        let held = self.objects.values().filter(|object| object.deleting && !object.finalizers.is_empty());
        steps.extend(held.map(|object| Step::RemoveFinalizers(object.name.clone())));
        steps.extend((0..self.timers.len()).map(Step::Expire));
        let mut mischief = Vec::new();
        if self.mischief > 0 {
            for at in 0..self.requests.len() {
                mischief.extend([Step::Fail(at, false), Step::Fail(at, true), Step::Refuse(at)]);
            }
            for name in ["a", "b", "c", "d"] {
                mischief.extend(["ours x", "extra", ""].map(|rest| Step::Create(name, rest)));
                mischief.extend(self.objects.contains_key(name).then_some(Step::Keep(name)));
            }
            mischief.push(Step::Stop);
        }
        (steps, mischief)
    }

    /// Does a step, and returns the input that the machine gets of it.
    fn step(&mut self, step: Step) -> Option<Input> {
        match step {
            Step::Watch(at) => return self.watches[at].pop_front().map(|change| Input::Change(at, change)),
            Step::Poll(at) => {
                for change in self.poll(at) {
                    match &change {
                        Change::Present(object) => drop(self.known[at].insert(object.name.clone(), object.clone())),
                        Change::Gone { name, .. } => drop(self.known[at].remove(name)),
                        _ => {}
                    }
                    self.watches[at].push_back(change);
                }
            }
            Step::Answer(at) => return Some(Input::Answer(self.answers.remove(at))),
            Step::Expire(at) => return Some(Input::Due(self.timers.remove(at))),
            Step::Serve(at) => {
                let request = self.requests.remove(at);
                let answer = self.serve(&request);
                self.answers.push(answer);
            }
            Step::RemoveFinalizers(name) => self.remove_finalizers(&name),
            Step::Fail(at, served) => {
                let request = self.requests.remove(at);
                if served {
                    self.serve(&request);
                }
                self.answers.push(failed(request, ErrorKind::Timeout));
            }
            Step::Refuse(at) => {
                self.refused |= matches!(self.requests[at], Request::Delete(..) | Request::Read(..));
                let answer = failed(self.requests.remove(at), ErrorKind::Refused);
                self.answers.push(answer);
            }
            Step::Prevent(at) => {
                let answer = failed(self.requests.remove(at), ErrorKind::Stopped);
                self.answers.push(answer);
            }
            Step::Create(name, rest) => {
                self.remove(name);
                self.created += 1;
                self.objects.insert(name.to_owned(), observed(&format!("{name}-{} {rest}", self.created)));
                self.created_since_list = true;
                self.show(name);
            }
            Step::Keep(name) => {
                if let Some(object) = self.objects.get_mut(name) {
                    object.annotations = observed("a-1 @keep-object=true").annotations;
                    self.show(name);
                }
            }
            Step::Stop => {
                self.stopped = true;
                self.mischief = 0;
                return Some(Input::Stop);
            }
        }
        None
    }

    fn serve(&mut self, request: &Request) -> Answer {
        match request {
            Request::Delete(key, uid, _, version) => {
                let answer = match self.objects.get_mut(&key.name) {
                    None => DeleteAnswer::NotFound,
                    Some(object) if object.uid != *uid => DeleteAnswer::OtherUid,
                    Some(object) if !version.is_empty() && object.resource_version != *version => DeleteAnswer::Changed,
                    Some(object) => {
                        assert!(!object.labels.is_empty(), "{uid} belongs to another client");
                        assert!(version.is_empty() || !is_kept(object), "{uid} is kept");
                        let finalizers = object.finalizers.clone();
                        object.deleting = !finalizers.is_empty();
                        if finalizers.is_empty() {
                            self.remove(&key.name)
                        } else {
                            self.show(&key.name)
                        }
                        DeleteAnswer::Accepted { deletion: !finalizers.is_empty(), finalizers, deleted_at: None }
                    }
                };
                if answer != DeleteAnswer::Changed {
                    self.requested.insert(uid.clone());
                }
                Answer::Delete(key.clone(), uid.clone(), Ok(answer))
            }
            Request::RemoveFinalizers { key, uid, present, .. } => {
                let answer = match self.objects.get(&key.name) {
                    None => RemoveAnswer::Gone,
                    Some(object) if object.uid == *uid && object.finalizers == *present => {
                        assert!(object.deleting, "{uid} is not being deleted");
                        self.remove_finalizers(&key.name);
                        RemoveAnswer::Removed(present.clone())
                    }
                    Some(_) => RemoveAnswer::Changed,
                };
                Answer::Remove(key.clone(), uid.clone(), Ok(answer))
            }
            Request::Read(key, uid, _) => {
                let found = self.objects.get(&key.name).cloned();
                Answer::Read(key.clone(), uid.clone(), Ok(found))
            }
            Request::List(index) => {
                self.created_since_list = false;
                let found =
                    self.objects.values().filter(|object| is_extra(object) && !is_kept(object)).cloned().collect();
                Answer::List(*index, Ok(found))
            }
            Request::Look(key, uid, _) => Answer::Look(key.clone(), uid.clone(), Ok(None)),
            Request::FinalizeNamespace(..) | Request::ReadNamespace(..) | Request::EndGrace(..) => {
                unreachable!("no object is a Namespace or Pod")
            }
            Request::Namespace(..) | Request::ReleaseSnapshot(..) => unreachable!("the plan cleans no cluster"),
        }
    }

    fn remove_finalizers(&mut self, name: &str) {
        if let Some(object) = self.objects.get_mut(name) {
            object.finalizers.clear();
        }
        self.remove(name);
    }

    fn remove(&mut self, name: &str) {
        let Some(object) = self.objects.remove(name) else { return };
        self.report(&object, gone_from(&object));
    }

    fn show(&mut self, name: &str) {
        self.version += 1;
        let Some(object) = self.objects.get_mut(name) else { return };
        object.resource_version = self.version.to_string();
        let object = object.clone();
        self.report(&object, Change::Present(object.clone()));
    }

    /// Returns what a poll of a watch reports.
    fn poll(&self, at: usize) -> Vec<Change> {
        let known = &self.known[at];
        let is_new = |object: &&Observed| known.get(&object.name) != Some(object);
        let is_seen = |object: &&Observed| self.mode == Mode::Lists || known.contains_key(&object.name);
        let is_selected = |object: &&Observed| at == 0 || is_extra(object);
        let is_gone = |object: &&Observed| self.objects.get(&object.name).is_none_or(|now| now.uid != object.uid);
        let gone = known.values().filter(is_gone).map(gone_from);
        let present = self.objects.values().filter(is_selected).filter(is_seen).filter(is_new);
        gone.chain(present.cloned().map(Change::Present)).collect()
    }

    fn report(&mut self, object: &Observed, change: Change) {
        if self.mode != Mode::Events {
            return;
        }
        if is_extra(object) {
            self.watches[1].push_back(change.clone());
        }
        self.watches[0].push_back(change);
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Send(request) => {
                assert!(!self.stopped, "a request was sent after Ctrl-C");
                self.requests.push(request);
            }
            Effect::Timer(timer, _) => self.timers.push(timer),
            Effect::ForceAfter { timer, .. } => self.timers.push(timer),
            Effect::Watch { .. } => {}
            Effect::Emit(Event::Gone { uid, .. }) => {
                assert!(self.objects.values().all(|object| object.uid != uid), "{uid} is not gone");
                self.gone += 1;
            }
            Effect::Emit(Event::Appeared { .. }) => self.appeared += 1,
            Effect::Emit(_) => {}
        }
    }

    fn check_end(&self, status: Status, kept: usize) {
        match status {
            Status::Done => {
                assert_eq!(self.gone + kept, 3 + self.appeared, "the node ended before all objects were gone");
                let left = self.objects.values().find(|object| is_extra(object) && !is_kept(object));
                assert!(left.is_none() || self.created_since_list, "the collection is not empty: {left:?}");
            }
            Status::Failed => assert!(self.refused, "nothing was refused for good"),
            Status::Interrupted => assert!(self.stopped, "nobody pressed Ctrl-C"),
            Status::NotStarted | Status::TimedOut => unreachable!("{status:?}"),
        }
    }
}

fn gone_from(object: &Observed) -> Change {
    Change::Gone { namespace: object.namespace.clone(), name: object.name.clone(), uid: object.uid.clone() }
}

fn is_extra(object: &Observed) -> bool {
    object.labels.contains_key("extra")
}

fn is_kept(object: &Observed) -> bool {
    object.annotations.treatment().is_kept()
}

fn failed(request: Request, kind: ErrorKind) -> Answer {
    let failure = failure(kind);
    match request {
        Request::Delete(key, uid, ..) => Answer::Delete(key, uid, Err(failure)),
        Request::RemoveFinalizers { key, uid, .. } | Request::FinalizeNamespace(key, uid, _) => {
            Answer::Remove(key, uid, Err(failure))
        }
        Request::Read(key, uid, _) => Answer::Read(key, uid, Err(failure)),
        Request::ReadNamespace(key, uid, _) => Answer::ReadNamespace(key, uid, Err(failure)),
        Request::EndGrace(key, uid, _) => Answer::EndGrace(key, uid, Err(failure)),
        Request::Look(key, uid, _) => Answer::Look(key, uid, Err(failure)),
        Request::List(index) => Answer::List(index, Err(failure)),
        Request::Namespace(name) => Answer::Namespace(name, Err(failure)),
        Request::ReleaseSnapshot(key, uid, _) => Answer::ReleaseSnapshot(key, uid, Err(failure)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn only_what_is_gone_is_reported_gone_and_every_node_ends(
        schedule in proptest::collection::vec(any::<u8>(), 0..80),
        force in any::<bool>(),
        mode in prop_oneof![Just(Mode::Events), Just(Mode::Lists), Just(Mode::Reads)],
    ) {
        let mut rest = json!({"collections": [{"query": 1, "labelSelector": {"matchLabels": {"extra": "yes"}}}]});
        if force {
            rest["force"] = json!({"after": "5m"});
        }
        let mut plan = plan("a-1 b-1 c-1", rest);
        plan.queries[1] = plan.queries[0].clone();
        let Work::Delete(work) = &mut plan.nodes[0].work else { unreachable!("the node deletes") };
        work.objects[2].query = 1;
        work.objects.iter_mut().for_each(|task| task.resource_version = "1".to_owned());
        let work = work.clone();

        let mut machine = Machine::new(&plan, 0, &work, Some(LABEL));
        let mut world = World::new(mode);
        let mut schedule = schedule.into_iter();
        let mut input = Some(Input::Start);
        for _ in 0..1000 {
            if let Some(input) = input.take() {
                machine.on(input).for_each(|effect| world.carry_out(effect));
            }
            if machine.has_ended() {
                break;
            }
            let (mut steps, mischief) = world.steps();
            let next = match schedule.next() {
                Some(choice) => {
                    let certain = steps.len();
                    steps.extend(mischief);
                    let next = usize::from(choice) % steps.len();
                    world.mischief -= usize::from(next >= certain && world.mischief > 0);
                    next
                }
                None => 0,
            };
            prop_assert!(next < steps.len(), "nothing can happen any more, and the node has not ended");
            input = world.step(steps.swap_remove(next));
        }
        prop_assert!(machine.has_ended(), "the node does not end");
        let tracked: BTreeMap<_, _> = machine.objects.iter().map(|(key, o)| (key.clone(), o.uid.clone())).collect();
        let result = machine.into_result();
        for (key, blocker) in &result.left {
            let is_requested = world.requested.contains(&tracked[key]);
            prop_assert!(!is_requested || *blocker != Some(Blocker::NotRequested), "{key} was requested");
        }
        world.check_end(result.status, result.kept.len());
    }
}
