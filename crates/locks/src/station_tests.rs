//! Tests of all services made of messages: random requests over a network that loses, repeats and reorders, and new
//! views beside them; and the number of messages of each kind of request.

use super::*;

/// A small generator: the tests need no more.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

struct Net {
    settings: Settings,
    stations: Vec<Option<Station>>,
    view: View,
    flying: Vec<Post>,
    now: u64,
}

impl Net {
    fn new(kind: Kind, machines: u16) -> Net {
        let mut settings = Settings::new(kind, 8);
        settings.profile = Profile { hot: vec![LockId(0), LockId(3)], slots: 2 };
        let ids: Vec<Machine> = (1..=machines).map(Machine).collect();
        let station = |id: &Machine| Some(Station::new(settings.clone(), *id, View(0), &[]));
        let stations = ids.iter().map(station).collect();
        let mut net = Net { settings, stations, view: View(0), flying: Vec::new(), now: 0 };
        net.change_view(&[]);
        net
    }

    fn change_view(&mut self, dead: &[u16]) {
        self.view = self.view.next();
        for id in dead {
            self.stations[usize::from(*id) - 1] = None;
        }
        let submissions = self.stations.iter_mut().flatten();
        let submissions = submissions
            .map(|it| (it.machine(), it.pause(self.view).expect("a later view")))
            .collect();
        let next = NewView::new(self.view, &self.settings, submissions, &[]);
        let now = self.now;
        self.stations.iter_mut().flatten().for_each(|it| it.resume(now, &next));
    }

    fn collect(&mut self) {
        for station in self.stations.iter_mut().flatten() {
            self.flying.extend(station.posts());
        }
    }

    fn deliver(&mut self, at: usize, keeps: bool) {
        let post = match keeps {
            true => self.flying[at].clone(),
            false => self.flying.swap_remove(at),
        };
        let now = self.now;
        let station = self.stations.get_mut(usize::from(post.to.0).wrapping_sub(1));
        if let (Some(Some(station)), Some(arrived)) = (station, post.mail.arrive()) {
            station.receive(now, arrived);
        }
    }

    /// Delivers everything in its order, without loss.
    fn settle(&mut self) {
        self.collect();
        while !self.flying.is_empty() {
            let post = self.flying.remove(0);
            self.flying.insert(0, post);
            let rest = self.flying.split_off(1);
            self.deliver(0, false);
            self.flying = rest;
            self.collect();
        }
    }

    fn counts(&self) -> Counts {
        self.stations.iter().flatten().map(Station::counts).fold(Counts::default(), Counts::plus)
    }

    fn station(&mut self, machine: u16) -> &mut Station {
        self.stations[usize::from(machine) - 1].as_mut().expect("alive")
    }

    fn holds(&self) -> Vec<(LockId, RequestId)> {
        let all = self.stations.iter().flatten().flat_map(Station::requests);
        let held = all.filter(|(_, _, outcome)| matches!(outcome, Outcome::Holds(_)));
        held.map(|(request, lock, _)| (lock, request)).collect()
    }
}

/// Requests at random; returns the number of grants.
fn play(kind: Kind, seed: u64, has_deaths: bool) -> usize {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    for _ in 0..8 {
        dice.below(2);
    }
    let machines = 2 + dice.below(3) as u16;
    let mut net = Net::new(kind, machines);
    let mut modes: BTreeMap<RequestId, Mode> = BTreeMap::new();
    let (mut granted, mut alive) = (std::collections::BTreeSet::new(), machines);
    for step in 0..1_500 {
        net.now += 1;
        net.collect();
        let live: Vec<u16> =
            net.stations.iter().flatten().map(|station| station.machine().0).collect();
        let machine = live[dice.below(live.len() as u64) as usize];
        let now = net.now;
        match dice.below(20) {
            0..=1 => {
                let mode = if dice.below(2) == 0 { Mode::Shared } else { Mode::Exclusive };
                let lock = LockId(dice.below(4) as u32);
                let request = net.station(machine).acquire(now, lock, mode).expect("in range");
                modes.insert(request, mode);
            }
            2..=3 => {
                let requests = net.station(machine).requests();
                if !requests.is_empty() {
                    let (request, _, outcome) =
                        requests[dice.below(requests.len() as u64) as usize];
                    if matches!(outcome, Outcome::Holds(_)) || dice.below(4) == 0 {
                        net.station(machine).end(now, request);
                    }
                }
            }
            4 if step % 7 == 0 => net.station(machine).resend(Pace::constant(20), now),
            5 if dice.below(40) == 0 => net.change_view(&[]),
            6 if has_deaths && alive > 1 && dice.below(100) == 0 => {
                alive -= 1;
                net.change_view(&[machine]);
            }
            _ if net.flying.is_empty() => {}
            7 => drop(net.flying.swap_remove(dice.below(net.flying.len() as u64) as usize)),
            8 => {
                let at = dice.below(net.flying.len() as u64) as usize;
                net.deliver(at, true);
            }
            _ => {
                let at = dice.below(net.flying.len() as u64) as usize;
                net.deliver(at, false);
            }
        }
        check(&net, &modes, &mut granted, (kind, seed));
    }
    // Now nothing is lost, and whoever is granted a lock releases it: all requests are granted.
    for _ in 0..2_000 {
        net.now += 30;
        let now = net.now;
        net.stations.iter_mut().flatten().for_each(|it| it.resend(Pace::constant(15), now));
        net.settle();
        check(&net, &modes, &mut granted, (kind, seed));
        let held = net.holds();
        if held.is_empty() && net.stations.iter().flatten().all(|it| it.requests().is_empty()) {
            return granted.len();
        }
        for (_, request) in held {
            net.station(request.machine.0).end(now, request);
        }
        net.settle();
    }
    let left: Vec<_> = net.stations.iter().flatten().flat_map(Station::requests).collect();
    panic!("{kind:?}, seed {seed}: requests wait for ever: {left:?}");
}

fn check(
    net: &Net,
    modes: &BTreeMap<RequestId, Mode>,
    granted: &mut std::collections::BTreeSet<RequestId>,
    whose: (Kind, u64),
) {
    let held = net.holds();
    for (lock, request) in &held {
        granted.insert(*request);
        let is_beside = |(of, other): &&(LockId, RequestId)| of == lock && other != request;
        let beside = held.iter().find(is_beside);
        if let Some((_, other)) = beside {
            let shared = [request, other].map(|it| modes[it] == Mode::Shared);
            assert!(shared == [true, true], "{whose:?}: {request:?} beside {other:?}");
        }
    }
}

#[test]
fn random_requests_hold_locks_alone_and_end() {
    for kind in Kind::ALL {
        let granted: usize = (0..200).map(|seed| play(kind, seed, false)).sum();
        assert!(granted > 5_000, "{kind:?}: {granted}");
    }
}

#[test]
fn random_requests_go_on_after_deaths() {
    for kind in Kind::ALL {
        let granted: usize = (0..200).map(|seed| play(kind, 1_000 + seed, true)).sum();
        assert!(granted > 5_000, "{kind:?}: {granted}");
    }
}

/// Counts of what `act` sends.
fn cost(net: &mut Net, act: impl FnOnce(&mut Net)) -> (u64, u64, u64) {
    let before = net.counts();
    act(net);
    net.settle();
    let after = net.counts();
    (
        after.messages - before.messages,
        after.acknowledgements - before.acknowledgements,
        after.resends - before.resends,
    )
}

fn acquire(net: &mut Net, machine: u16, mode: Mode) -> RequestId {
    let request = net.station(machine).acquire(0, LockId(1), mode).expect("in range");
    net.settle();
    request
}

#[test]
fn fisslock_sends_as_many_messages_as_it_says() {
    let mut net = Net::new(Kind::FissLock, 4);
    let mut at = Vec::new();
    let mut take = |net: &mut Net, machine, mode| {
        let mut request = None;
        let sent = cost(net, |net| request = Some(acquire(net, machine, mode)));
        at.extend(request);
        sent
    };
    assert_eq!(take(&mut net, 2, Mode::Shared), (2, 0, 0), "a free lock");
    assert_eq!(take(&mut net, 3, Mode::Shared), (3, 1, 0), "shared beside shared");
    assert_eq!(take(&mut net, 2, Mode::Shared), (0, 0, 0), "beside the agent");
    assert_eq!(take(&mut net, 4, Mode::Exclusive), (2, 1, 0), "a request that waits");
    let [free, beside, local, waits] = at[..] else { panic!("four requests") };
    let end = |net: &mut Net, request: RequestId| {
        cost(net, |net| _ = net.station(request.machine.0).end(0, request))
    };
    assert_eq!(end(&mut net, local), (0, 0, 0), "a holder of the agent's machine");
    assert_eq!(end(&mut net, beside), (1, 1, 0), "a holder of another machine");
    assert_eq!(end(&mut net, free), (2, 1, 0), "the lock goes to the request that waits");
    assert!(net.holds().contains(&(LockId(1), waits)));
    assert_eq!(end(&mut net, waits), (2, 0, 0), "the last holder");
    assert!(net.stations.iter().flatten().skip(1).all(Station::is_idle));
}

#[test]
fn a_lock_that_is_declared_local_costs_no_message() {
    let mut net = Net::new(Kind::FissLockLocal, 2);
    for station in net.stations.iter_mut().flatten() {
        station.settings.local = vec![(LockId(1), Machine(2))];
    }
    let first = net.station(2).acquire(0, LockId(1), Mode::Exclusive).expect("its own");
    let second = net.station(2).acquire(0, LockId(1), Mode::Shared).expect("its own");
    assert_eq!(net.station(1).acquire(0, LockId(1), Mode::Shared), None, "another machine's");
    assert_eq!(net.station(1).acquire(0, LockId(8), Mode::Shared), None, "out of range");
    assert!(matches!(net.station(2).outcome(first), Some(Outcome::Holds(_))));
    assert_eq!(net.station(2).outcome(second), Some(Outcome::Queued));
    assert!(net.station(2).end(0, first));
    assert!(matches!(net.station(2).outcome(second), Some(Outcome::Holds(_))));
    assert_eq!(net.counts(), Counts::default());
}

#[test]
fn a_lock_left_behind_is_granted_only_in_a_later_view() {
    for kind in Kind::ALL {
        let mut net = Net::new(kind, 3);
        let held = acquire(&mut net, 3, Mode::Exclusive);
        assert!(net.holds().contains(&(LockId(1), held)));
        net.view = net.view.next();
        let view = net.view;
        let left = net.station(3).pause(view).expect("a later view");
        net.stations[2] = None;
        let taking_part: Vec<_> = net
            .stations
            .iter_mut()
            .flatten()
            .map(|it| (it.machine(), it.pause(view).expect("a later view")))
            .collect();
        let next = NewView::new(view, &net.settings, taking_part, &[(Machine(3), left)]);
        net.stations.iter_mut().flatten().for_each(|it| it.resume(0, &next));
        let waits = acquire(&mut net, 2, Mode::Shared);
        assert!(net.holds().is_empty(), "{kind:?}");
        net.change_view(&[]);
        net.settle();
        assert_eq!(net.holds(), [(LockId(1), waits)], "{kind:?}");
    }
}

#[test]
fn netlock_grants_more_requests_than_the_switch_has_room_for() {
    let mut net = Net::new(Kind::NetLock, 3);
    let requests: Vec<RequestId> = (0..7)
        .map(|at| {
            let machine = 1 + at % 3;
            let request = net.station(machine).acquire(0, LockId(3), Mode::Exclusive);
            net.settle();
            request.expect("in range")
        })
        .collect();
    let mut served = Vec::new();
    while let Some(&(_, request)) = net.holds().first() {
        served.push(request);
        net.station(request.machine.0).end(0, request);
        net.settle();
    }
    assert_eq!(served, requests, "in the order in which they came");
}
