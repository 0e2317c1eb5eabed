// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file A job on fake ranks: network, data plane, programs, and an oracle that sees everything
/// while the nodes see only messages. It checks the promises of the protocol, protocol P1 to
/// protocol P8, all the time.

#include "protocol/support.hpp"

#include <cohort/protocol/queues.hpp>
#include <cohort/testing/network.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace protocol_test {

using bytes = std::vector<std::byte>;

/// Something that a coroutine of a rank does.
struct step {
  enum class kind { submit, cancel, join, start, remove, stall, leave_set } what = kind::submit;
  int key = 0;  // names a submission within the task
  full_name name;
  signature sig;
  std::int64_t size = 1;
  bool wait = false;
  bool deadline = false;      // cancel: surely for a deadline
  bool abandons = false;      // leave_set
  std::optional<int> inside;  // the set is the one that the submission with this key has made
  std::optional<int> needs;   // submit: only if the submission with this key has succeeded
};

/// One coroutine of a rank: submits, waits, cancels, joins in program order.
struct task {
  int negotiation = 0;
  int rank = 0;
  std::vector<step> steps;
  std::size_t at = 0;
  std::map<int, int> keys;     // key -> operation
  std::vector<int> submitted;  // in order
  std::size_t tail = 0;
  int waits = -1;  // operation
  bool done = false;
};

/// An elected operation in the data plane: one collective, or sizes and then data.
struct execution {
  full_name name;
  bool is_join = false;
  std::vector<std::map<int, int>> parts;  // rank -> operation, or -1
};

/// What a rank has to start, or a later part of it.
struct posting {
  int negotiation = 0;
  int rank = 0;
  std::uint64_t log_count = 0;
  full_name name;
  epoch number = 0;
  signature sig;
  std::uint64_t contributors = 0;
  int operation = -1;
  std::uint64_t reference = 0;
  bool known = false;
  bool is_join = false;
  std::uint32_t slot = 0;
  std::size_t part = 0;
};

/// A rank's elected operations, started in log order.
struct device {
  start_queue queue{1};
  std::map<std::uint64_t, posting> waiting;  // by log count
  std::vector<posting> later;
};

struct instance_options {
  node_options node;
  std::uint32_t slots = 1;
  bool plan = false;
};

/// One coordinator negotiation with the oracle's notes. Ranks are those of the negotiation.
struct negotiation {
  negotiation(int ranks, const cohort::testing::network_options& options_of_net)
      : net(ranks, options_of_net) {}

  std::vector<std::set<int>> sets;
  std::vector<int> world_rank;
  std::vector<int> parents;
  node_options options;
  std::uint32_t slots = 1;
  std::vector<node> nodes;
  cohort::testing::network<bytes> net;
  std::vector<std::size_t> processed;  // per node: actions that have been looked at

  std::vector<oracle_operation> operations;
  std::map<std::pair<full_name, epoch>, std::map<int, int>> submitted;  // -> rank -> operation
  std::map<std::pair<int, full_name>, epoch> offset;  // epochs subtracted by generations
  std::map<std::pair<int, full_name>, epoch> count;
  std::map<std::pair<full_name, epoch>, rank_set> exact;  // who is missing, known
  std::vector<std::set<int>> joined;                      // per set
  std::set<std::uint32_t> ever_joined;
  std::map<std::pair<full_name, epoch>, ending> failures;
  std::map<std::uint64_t, std::uint64_t> digests;
  std::map<std::string, std::vector<std::uint64_t>> order;
  std::map<std::pair<int, std::string>, std::size_t> position;
  std::map<std::uint64_t, execution> data;
  std::map<std::uint64_t, std::map<int, std::int64_t>> vectors;  // sizes by log count
  std::map<std::pair<full_name, std::uint64_t>, std::map<int, int>> starts;
  std::map<std::pair<int, full_name>, std::pair<std::uint64_t, std::uint64_t>> drains;
  std::map<full_name, std::set<int>> listed;  // names of which only these ranks take part
  std::set<int> left_now;
  std::map<std::uint32_t, std::set<int>> gone;       // ranks that have left a set alone
  std::map<std::uint32_t, std::set<int>> abandoned;  // those that wanted nothing completed
  std::map<std::uint32_t, std::set<int>> told_ended;
  std::map<std::pair<std::uint32_t, int>, std::string> reasons;  // of leaves, set or none, rank
  std::set<std::pair<std::uint32_t, int>> silent;                // leaves without one

  [[nodiscard]] const std::set<int>& members(const full_name& name) const {
    const auto found = listed.find(name);
    return found == listed.end() ? sets[name.first] : found->second;
  }
  std::map<int, std::uint64_t> adjusted;  // per rank: the log count at the last change of numbers
  std::map<int, std::uint64_t> started;   // per rank: that of the last start
  std::uint64_t asked = UINT64_MAX;
  std::uint64_t messages = 0;
  bool deciding = false;  // its root has been asked to decide
};

class world {
 public:
  explicit world(rng random) : random_(random) {}

  bool stream = false;
  bool drain = true;      // tasks end without waiting for what they have submitted
  bool coalesce = false;  // protocol F2
  bool undisturbed = false;
  bool deep = true;                  // compare the replicas
  bool decides_at_any_time = false;  // a root that decides when asked does so as a step of its own
  bool tracing = false;

  rng& random() { return random_; }
  std::vector<negotiation>& negotiations() { return negotiations_; }
  std::map<std::string, std::uint64_t>& hits() { return hits_; }
  [[nodiscard]] std::uint64_t steps() const { return steps_; }
  /// Named operations, and how often ranks have submitted one.
  struct totals {
    std::uint64_t operations = 0;
    std::uint64_t submissions = 0;
  };
  [[nodiscard]] totals submitted() const;

  /// Adds a negotiation whose nodes are connected as `parents` says.
  void add(std::vector<std::set<int>> sets, std::vector<int> world_rank, std::vector<int> parents,
           const node_options& options, std::uint32_t slots);
  /// After all negotiations: the programs of its ranks, and who abandons.
  void add_programs(int number, std::vector<std::vector<std::vector<step>>> programs,
                    const std::set<int>& abandon);

  /// What can happen next.
  struct actor {
    enum class kind { task, close, flush, deliver, run, decide, quiet } what = kind::task;
    int a = 0;
    int b = 0;
    int c = 0;
  };
  std::vector<actor> actors;
  bool act(const actor& one);
  void add_random_actors();
  void add_small_actors();

  /// Lets the nodes call back into this world. To be called when it is complete, and after it has
  /// been copied or moved.
  void bind();
  void run(bool any_slow);
  /// Sends and runs devices until nothing moves: what takes no choice in small jobs.
  void settle();
  /// Nothing moves. A timer of a plan, of the stall query or of the program fires, or it is over.
  bool quiet();
  void final();
  [[nodiscard]] std::uint64_t digest() const;

 private:
  struct closer {
    int negotiation;
    int rank;
    std::vector<int> tasks;
    bool now;
  };

  void hit(const char* what) { ++hits_[what]; }
  template <class Call>
  void call(int number, int rank, Call call);
  void look(int number, int rank);
  void perform(int number, int rank, const action& one);
  void log_item(int number, const node& self, part item, name_index name, epoch at,
                const verdict* why);

  bool step_of(task& one);
  int submit(int number, int rank, const step& what);
  void cancel(int number, int operation, bool deadline);
  int join(int number, int rank, std::uint32_t set);
  void leave_set(int number, int rank, std::uint32_t set, bool abandons);
  std::string give_reason(negotiation& inst, std::uint32_t set, int rank);
  void check_reason(int number, std::uint32_t set, const verdict& why);
  [[nodiscard]] bool has_group(int number, int rank, std::uint32_t set) const;
  [[nodiscard]] bool removes_group(int number, int rank, const full_name& group) const;
  void use_group(task& one, const step& what);
  void start_group(int number, int rank, const full_name& group);
  bool close(const closer& one);
  bool decide(int number);
  bool decide_and_send(int number);
  bool flush(int number, int from, int to);
  bool deliver(int number, int from, int to);
  bool run_device(std::size_t index);

  void note_start(negotiation& inst, int rank, const std::string& where, std::uint64_t identity);
  void start(posting what);
  void finished(int number, const posting& what, execution& run);
  void start_persistent(int number, const full_name& group, std::uint64_t k, int rank, int op);
  void poll_persistent(int number, int rank);
  [[nodiscard]] std::size_t device_of(int number, int rank);
  [[nodiscard]] bool cached(const negotiation& inst, const full_name& name, const signature& sig);
  [[nodiscard]] bool is_finished(int number, int operation) const {
    return negotiations_[static_cast<std::size_t>(number)]
               .operations[static_cast<std::size_t>(operation)]
               .result != ending::none;
  }
  negotiation& at(int number) { return negotiations_[static_cast<std::size_t>(number)]; }
  oracle_operation& op(int number, int index) {
    return at(number).operations[static_cast<std::size_t>(index)];
  }

  struct context {
    world* self;
    int number;
  };
  rng random_;
  std::vector<negotiation> negotiations_;
  std::vector<task> tasks_;
  std::vector<closer> closers_;
  std::map<std::pair<int, int>, std::size_t> device_index_;
  std::vector<device> devices_;
  std::deque<context> contexts_;
  std::map<std::string, std::uint64_t> hits_;
  std::uint64_t steps_ = 0;
};

// ---- building ----------------------------------------------------------------------------------

inline void world::add(std::vector<std::set<int>> sets, std::vector<int> world_rank,
                       std::vector<int> parents, const node_options& options, std::uint32_t slots) {
  const int ranks = static_cast<int>(parents.size());
  const cohort::testing::network_options net;
  negotiations_.emplace_back(ranks, net);
  negotiation& inst = negotiations_.back();
  inst.sets = std::move(sets);
  inst.world_rank = std::move(world_rank);
  inst.parents = std::move(parents);
  inst.options = options;
  inst.slots = slots;
  inst.joined.resize(inst.sets.size());
  inst.processed.resize(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<rank_set> members;
    for (const std::set<int>& set : inst.sets) {
      members.emplace_back();
      for (const int member : set) members.back().insert(member);
    }
    inst.nodes.emplace_back(tree::from_parents(rank, inst.parents), members, options);
    const int number = static_cast<int>(negotiations_.size()) - 1;
    const std::pair<int, int> key{inst.world_rank[static_cast<std::size_t>(rank)],
                                  stream ? 0 : number};
    if (device_index_.emplace(key, devices_.size()).second) {
      devices_.emplace_back();
      devices_.back().queue = start_queue(slots, stream);
    }
  }
}

inline void world::add_programs(int number, std::vector<std::vector<std::vector<step>>> programs,
                                const std::set<int>& abandon) {
  for (int rank = 0; rank < static_cast<int>(programs.size()); ++rank) {
    closer end{number, rank, {}, abandon.contains(rank)};
    for (std::vector<step>& lane : programs[static_cast<std::size_t>(rank)]) {
      task one;
      one.negotiation = number;
      one.rank = rank;
      one.steps = std::move(lane);
      end.tasks.push_back(static_cast<int>(tasks_.size()));
      tasks_.push_back(std::move(one));
    }
    closers_.push_back(std::move(end));
  }
}

inline void world::add_random_actors() {
  add_small_actors();
  actors.pop_back();  // quiet
  for (int number = 0; number < static_cast<int>(negotiations_.size()); ++number) {
    const std::vector<int>& parents = at(number).parents;
    for (int rank = 1; rank < static_cast<int>(parents.size()); ++rank) {
      const int parent = parents[static_cast<std::size_t>(rank)];
      actors.push_back({actor::kind::flush, number, rank, parent});
      actors.push_back({actor::kind::flush, number, parent, rank});
    }
  }
  for (int i = 0; i < static_cast<int>(devices_.size()); ++i) {
    actors.push_back({actor::kind::run, i, 0, 0});
  }
}

inline void world::add_small_actors() {
  for (int i = 0; i < static_cast<int>(tasks_.size()); ++i) {
    actors.push_back({actor::kind::task, i, 0, 0});
  }
  for (int i = 0; i < static_cast<int>(closers_.size()); ++i) {
    actors.push_back({actor::kind::close, i, 0, 0});
  }
  for (int number = 0; number < static_cast<int>(negotiations_.size()); ++number) {
    const std::vector<int>& parents = at(number).parents;
    for (int rank = 1; rank < static_cast<int>(parents.size()); ++rank) {
      const int parent = parents[static_cast<std::size_t>(rank)];
      actors.push_back({actor::kind::deliver, number, rank, parent});
      actors.push_back({actor::kind::deliver, number, parent, rank});
    }
    if (decides_at_any_time && at(number).options.decides_when_asked) {
      actors.push_back({actor::kind::decide, number, 0, 0});
    }
  }
  actors.push_back({actor::kind::quiet, 0, 0, 0});
}

inline bool world::act(const actor& one) {
  switch (one.what) {
    case actor::kind::task:
      return step_of(tasks_[static_cast<std::size_t>(one.a)]);
    case actor::kind::close:
      return close(closers_[static_cast<std::size_t>(one.a)]);
    case actor::kind::flush:
      return flush(one.a, one.b, one.c);
    case actor::kind::deliver:
      return deliver(one.a, one.b, one.c);
    case actor::kind::run:
      return run_device(static_cast<std::size_t>(one.a));
    case actor::kind::decide:
      return decide_and_send(one.a);
    case actor::kind::quiet:
      return quiet();
  }
  return false;
}

inline void world::bind() {
  contexts_.clear();
  for (int number = 0; number < static_cast<int>(negotiations_.size()); ++number) {
    context& here = contexts_.emplace_back(context{this, number});
    for (node& each : at(number).nodes) {
      each.observe(
          [](void* where, const node& self, part item, name_index name, epoch number_,
             const verdict* why) {
            const context& back = *static_cast<context*>(where);
            back.self->log_item(back.number, self, item, name, number_, why);
          },
          &here);
    }
  }
}

// ---- nodes -------------------------------------------------------------------------------------

template <class Call>
void world::call(int number, int rank, Call call) {
  node& self = at(number).nodes[static_cast<std::size_t>(rank)];
  call(self);
  look(number, rank);
  self.clear_actions();
  at(number).processed[static_cast<std::size_t>(rank)] = 0;
  if (rank == 0 && (at(number).deciding || !at(number).options.decides_when_asked)) {
    check(self.log().closed || self.log().names_in_use() <= at(number).options.name_capacity,
          "P8 name table too long");
  }
}

// Asks the root to decide, if it waits for that. Returns whether it has decided anything.
inline bool world::decide(int number) {
  negotiation& inst = at(number);
  if (!inst.options.decides_when_asked) return false;
  const std::uint64_t before = inst.nodes.front().log().position;
  const std::uint64_t count = inst.nodes.front().log().log_count;
  if (!decides_at_any_time && count != inst.adjusted[0] && random_.happens(.1)) {
    fusion_options packing = inst.options.fusion;
    packing.fuse_below = static_cast<std::uint64_t>(random_.between(0, 64));
    call(number, 0, [&](node& self) { self.adjust({self.log().log_count}, packing); });
    hit("R6 adjusted");
  }
  inst.deciding = true;
  call(number, 0, [](node& self) { self.decide(); });
  inst.deciding = false;
  const bool decided = inst.nodes.front().log().position != before;
  if (decided) hit("decided when asked");
  return decided;
}

// Does what the node says, as far as it has said.
inline void world::look(int number, int rank) {
  std::size_t& next = at(number).processed[static_cast<std::size_t>(rank)];
  const node& self = at(number).nodes[static_cast<std::size_t>(rank)];
  while (next < self.actions().size()) perform(number, rank, self.actions()[next++]);
}

inline void world::perform(int number, int rank, const action& one) {
  negotiation& inst = at(number);
  const node& self = inst.nodes[static_cast<std::size_t>(rank)];
  const full_name name =
      one.name == none ? full_name{one.set, "join"} : full_name{one.set, self.name(one.name).text};
  const int operation = static_cast<int>(one.token) - 1;
  switch (one.kind) {
    case action_kind::start:
    case action_kind::start_join: {
      check(one.log_count > inst.adjusted[rank], "R6 rank ", rank, " starts ", one.log_count,
            " after a change at ", inst.adjusted[rank]);
      inst.started[rank] = one.log_count;
      posting what;
      what.negotiation = number;
      what.rank = rank;
      what.log_count = one.log_count;
      what.name = name;
      what.operation = operation;
      what.is_join = one.kind == action_kind::start_join;
      if (what.is_join) {
        inst.joined[one.set].erase(rank);
        op(number, operation).size = static_cast<std::int64_t>(one.count);
        what.number = static_cast<epoch>(one.log_count);
      } else {
        what.number = inst.offset[{rank, name}] + one.number;
        what.sig = self.entry(one.entry).sig;
        what.contributors = one.count;
        what.reference = one.reference;
        what.known = one.known;
        if (operation >= 0) {
          check(op(number, operation).number == what.number, "P6 ", name, " number ",
                op(number, operation).number, " started as ", what.number);
        }
        const auto ops = inst.submitted.find({name, what.number});
        check(ops != inst.submitted.end() && ops->second.size() == one.count, "P2 ", name, " ",
              what.number, " elected with ", one.count, " participants");
        if (one.made != none) op(number, operation).made = one.made;
        if (operation >= 0) op(number, operation).elected = true;
        check(operation < 0 || op(number, operation).sig == what.sig, "P2 ", name, " ", what.number,
              " started with another signature on rank ", rank);
      }
      const bool exchanges = !what.is_join && is_sized(what.sig.kind) && !what.known;
      device& here = devices_[device_of(number, rank)];
      const std::uint64_t id = one.log_count << 8U | static_cast<std::uint64_t>(number);
      const std::uint64_t reference =
          what.known ? one.reference << 8U | static_cast<std::uint64_t>(number) : 0;
      here.queue.push({one.set + 64U * static_cast<std::uint32_t>(number), id, exchanges, exchanges,
                       reference});
      here.waiting.emplace(id, std::move(what));
      break;
    }
    case action_kind::fail:
      if (const verdict& why = *self.verdict_of(one); why.kind == failure_kind::peer_lost) {
        check_reason(number, one.set, why);
      }
      op(number, operation).finish(ending_of(*self.verdict_of(one)));
      break;
    case action_kind::fail_join:
      hit("L4 join fails");
      op(number, operation).finish(ending::peer_lost);
      break;
    case action_kind::drain:
      inst.drains[{rank, name}] = {one.count, one.log_count};
      for (auto k = static_cast<std::uint64_t>(one.number); k < one.log_count; ++k) {
        hit("H4 neutral start");
        start_persistent(number, name, k, rank, -1);
      }
      poll_persistent(number, rank);
      break;
    case action_kind::report:
      for (const stall_report_row& row : self.report_of(one).rows) {
        const name_index known_name = self.log().names.find(row.set, row.name);
        if (known_name == none || self.log().settled(known_name, row.number)) continue;
        for (const side& ready : row.ready) {
          const full_name of{row.set, row.name};
          const auto ops = inst.submitted.find({of, inst.offset[{rank, of}] + row.number});
          for (const int who : ready.ranks.list()) {
            const bool known = ops != inst.submitted.end() && ops->second.contains(who);
            check(known, "P3 stall report: rank ", who, " is not ready for ", of);
          }
        }
      }
      hit("Q1 report delivered");
      break;
    case action_kind::end_set:
      hit("D2 set ended");
      check(inst.told_ended[one.set].insert(rank).second, "D2 rank ", rank,
            " is told twice that set ", one.set, " has ended");
      for (const int member : inst.sets[one.set]) {
        check(inst.gone[one.set].contains(member) ||
                  inspector::left(inst.nodes[static_cast<std::size_t>(member)]),
              "D2 set ", one.set, " has ended, and rank ", member, " is in it");
      }
      for (const name_index group : self.log().groups) {
        check(self.name(group).set != one.set, "P8 rank ", rank, " keeps a group of set ", one.set,
              ", which has ended");
      }
      break;
    case action_kind::renumber:
      inst.offset[{rank, name}] += one.number;
      break;
    case action_kind::adjust:
      inst.adjusted[rank] = self.adjustment_of(one).numbers.at(0);
      check(inst.started[rank] <= inst.adjusted[rank], "R6 rank ", rank, " has started ",
            inst.started[rank], " before a change at ", inst.adjusted[rank]);
      break;
    case action_kind::close:
      break;
  }
}

// After each log item, on every rank: the replicas are equal, decisions are right.
inline void world::log_item(int number, const node& self, part item, name_index index, epoch local,
                            const verdict* why) {
  negotiation& inst = at(number);
  const int rank = self.shape().rank();
  if (self.set_count() > inst.sets.size()) {  // made now, by the root
    const std::vector<int> made = self.set(self.set_count() - 1).members.list();
    inst.sets.emplace_back(made.begin(), made.end());
    inst.joined.emplace_back();
    hit("D1 set made");
  }
  const auto last = static_cast<std::uint32_t>(self.set_count() - 1);
  const std::vector<int> members_here = self.set(last).members.list();
  check(std::equal(members_here.begin(), members_here.end(), inst.sets[last].begin(),
                   inst.sets[last].end()),
        "P5 set ", last, " has other members on rank ", rank);
  look(number, rank);
  if (tracing) {
    std::printf("%6llu [%d] rank %2d log %llu: part %d", static_cast<unsigned long long>(steps_),
                number, rank, static_cast<unsigned long long>(self.log().position),
                static_cast<int>(item));
    if (index != none) {
      std::printf(" %s %lld", self.name(index).text.c_str(), static_cast<long long>(local));
    }
    if (why != nullptr) std::printf(" failure %d", static_cast<int>(why->kind));
    std::printf("\n");
  }
  if (deep && item != part::execute) {  // packs: compared when they are complete
    check(self.log().cache.size() <= inst.options.cache_capacity, "P8 cache too long");
    const std::uint64_t digest = self.log().digest();
    const auto [known, is_new] =
        inst.digests.emplace(self.log().position * 1000 + self.log().log_count, digest);
    check(is_new || known->second == digest, "P5 replicas differ at log position ",
          self.log().position, " on rank ", rank);
  }
  if (rank == 0 && inst.options.decides_when_asked &&
      (item == part::execute || item == part::join || item == part::generation)) {
    check(inst.deciding, "F1 decided unasked");
  }
  if (rank != 0 || index == none) return;
  const full_name name{self.name(index).set, self.name(index).text};
  const epoch at_number = inst.offset[{rank, name}] + local;
  const std::map<int, int>& ops = inst.submitted[{name, at_number}];
  if (item == part::execute) {
    const auto& joined = inst.joined[name.first];
    const signature* sig = nullptr;
    for (const auto& [who, operation] : ops) {
      const signature& theirs = op(number, operation).sig;
      check(sig == nullptr || theirs == *sig, "P2 ", name, " ", at_number,
            " elected although signatures differ");
      sig = &theirs;
    }
    for (const int member : inst.members(name)) {
      check(ops.contains(member) || joined.contains(member), "P2 ", name, " ", at_number,
            " elected, rank ", member, " has neither submitted it nor joined");
    }
    check(sig != nullptr && (sig->root < 0 || ops.contains(sig->root)), "P2 ", name, " ", at_number,
          " elected without data at its root");
    check(!name.second.ends_with(": start") || ops.size() == inst.members(name).size(), "H2 ", name,
          " ", at_number, " elected although a rank has joined");
  } else if (item == part::fail) {
    inst.failures[{name, at_number}] = ending_of(*why);
    bool right = true;
    if (why->kind == failure_kind::mismatch) {
      right = why->sides.size() > 1;
      for (const side& each : why->sides) {
        for (const int who : each.ranks.list()) {
          right = right && ops.contains(who) && op(number, ops.at(who)).sig == each.sig;
        }
      }
    } else if (why->kind == failure_kind::withdrawn) {
      right = ops.contains(why->rank) && op(number, ops.at(why->rank)).withdrawn;
      for (const int who : why->ready.list()) right = right && ops.contains(who);
      right = right && why->silent.empty() && why->unknown.empty();
      const auto exact = inst.exact.find({name, at_number});
      if (exact != inst.exact.end()) {
        right = right && why->missing == exact->second;
        inst.exact.erase(exact);
      }
    } else if (why->kind == failure_kind::joined) {
      for (const int who : why->ranks.list()) {
        right = right && !ops.contains(who) && inst.joined[name.first].contains(who);
      }
      right = right && !why->ranks.empty();
    } else if (why->kind == failure_kind::peer_lost) {  // only of listed members
      for (const int who : why->ranks.list()) {
        right = right && inst.members(name).contains(who) &&
                inspector::left(inst.nodes[static_cast<std::size_t>(who)]);
      }
      right = right && !why->ranks.empty() && inst.listed.contains(name);
      check_reason(number, name.first, *why);
    }
    std::ostringstream facts;
    for (const side& each : why->sides) {
      facts << " [" << name_of(each.sig.kind) << ' ' << each.sig.dimensions.str() << ": "
            << each.ranks.str() << ']';
    }
    if (!right) {
      facts << " named: " << why->ranks.str() << " missing: " << why->missing.str();
      facts << " joined:";
      for (const int who : inst.joined[name.first]) facts << ' ' << who;
      facts << " submitted:";
      for (const auto& [who, operation] : ops) {
        const signature& sig = op(number, operation).sig;
        facts << ' ' << who << ' ' << name_of(sig.kind) << ' ' << sig.dimensions.str();
      }
    }
    check(right, "P3 the failure of ", name, " ", at_number, " (", ending_of(*why),
          ") names the wrong ranks:", facts.str());
  }
}

inline bool world::flush(int number, int from, int to) {
  negotiation& inst = at(number);
  if (coalesce && inst.net.in_flight(from, to) != 0) return false;  // [protocol F2]
  const bool decided = from == 0 && decide(number);
  bytes message;
  if (!inst.nodes[static_cast<std::size_t>(from)].take_message(to, message)) return decided;
  inst.net.send(from, to, std::move(message));
  ++inst.messages;
  return true;
}

inline bool world::decide_and_send(int number) {
  bool moved = decide(number);
  const std::vector<int>& parents = at(number).parents;
  for (int rank = 1; rank < static_cast<int>(parents.size()); ++rank) {
    if (parents[static_cast<std::size_t>(rank)] == 0) moved = flush(number, 0, rank) || moved;
  }
  return moved;
}

inline bool world::deliver(int number, int from, int to) {
  negotiation& inst = at(number);
  auto next = inst.net.deliver(from, to);
  if (!next) return false;
  if (tracing) {
    std::printf("%6llu [%d] rank %2d to %2d: %zu bytes\n", static_cast<unsigned long long>(steps_),
                number, from, to, next->message.size());
  }
  check(!inst.nodes[static_cast<std::size_t>(to)].released(), "P4 message for rank ", to,
        " after it has freed the communicator");
  call(number, to, [&](node& self) { self.receive(from, next->message); });
  return true;
}

// ---- programs ----------------------------------------------------------------------------------

inline bool world::step_of(task& one) {
  if (one.done || (one.waits >= 0 && !is_finished(one.negotiation, one.waits))) return false;
  one.waits = -1;
  if (one.at == one.steps.size()) {
    if (!drain && one.tail < one.submitted.size()) {
      one.waits = one.submitted[one.tail++];
    } else {
      one.done = true;
    }
    return true;
  }
  step& what = one.steps[one.at++];
  if (what.inside) {
    const auto maker = one.keys.find(*what.inside);
    if (maker == one.keys.end()) return true;
    const oracle_operation& made = op(one.negotiation, maker->second);
    if (made.result != ending::ok) return true;
    what.name.first = *made.made;
  }
  switch (what.what) {
    case step::kind::submit: {
      if (what.needs) {
        const auto found = one.keys.find(*what.needs);
        if (found == one.keys.end() || op(one.negotiation, found->second).result != ending::ok)
          break;
        hit("D2 second operation of a process set");
      }
      const int operation = submit(one.negotiation, one.rank, what);
      one.keys[what.key] = operation;
      one.submitted.push_back(operation);
      if (what.wait) one.waits = operation;
      break;
    }
    case step::kind::cancel: {
      const auto found = one.keys.find(what.key);
      if (found != one.keys.end()) {
        cancel(one.negotiation, found->second, what.deadline || random_.real() > .5);
      }
      break;
    }
    case step::kind::join:
      at(one.negotiation).ever_joined.insert(what.name.first);
      one.waits = join(one.negotiation, one.rank, what.name.first);
      break;
    case step::kind::start:
    case step::kind::remove: {
      const auto found = one.keys.find(what.key);
      if (found != one.keys.end() && op(one.negotiation, found->second).result == ending::ok) {
        use_group(one, what);
      }
      break;
    }
    case step::kind::leave_set:
      leave_set(one.negotiation, one.rank, what.name.first, what.abandons);
      break;
    case step::kind::stall:
      call(one.negotiation, one.rank, [](node& self) {
        if (!inspector::left(self)) static_cast<void>(self.request_report());
      });
      break;
  }
  return true;
}

inline int world::submit(int number, int rank, const step& what) {
  negotiation& inst = at(number);
  const int index = static_cast<int>(inst.operations.size());
  inst.operations.emplace_back();
  oracle_operation& mine = inst.operations.back();
  mine.rank = rank;
  mine.name = what.name;
  mine.sig = what.sig;
  mine.size = what.size;
  const node& before = inst.nodes[static_cast<std::size_t>(rank)];
  const bool refused = inspector::left(before) || inspector::joined(before, what.name.first) ||
                       inspector::left_set(before, what.name.first);
  if (!refused) {
    const name_index known = before.log().names.find(what.name.first, what.name.second);
    mine.number =
        inst.offset[{rank, what.name}] + (known == none ? 0 : before.log().names[known].next);
    mine.is_submission = true;
    std::map<int, int>& ops = inst.submitted[{what.name, mine.number}];
    epoch& n = inst.count[{rank, what.name}];
    check(!ops.contains(rank), "P6 two submissions of ", what.name, " are number ", mine.number,
          " on rank ", rank);
    check(inst.ever_joined.contains(what.name.first) || mine.number == n, "P6 ", what.name,
          " on rank ", rank, ": submission ", n, " became ", mine.number);
    ++n;
    ops[rank] = index;
  }
  call(number, rank, [&](node& self) {
    const std::int64_t size = what.size;
    const call_site site{"rank " + std::to_string(rank), 1};
    const submission result =
        self.submit(what.name.first, what.name.second, what.sig,
                    static_cast<std::uint64_t>(index) + 1, std::span(&size, 1), &site);
    oracle_operation& now = op(number, index);
    now.operation = result.operation;
    check((result.status == submission_status::refused) == refused, "S2 submission of ", what.name,
          " on rank ", rank, " refused or not");
    if (result.status == submission_status::refused) now.finish(ending::refused);
    if (result.status == submission_status::failed) {
      hit("E3 submission of what has failed already");
      if (result.why->kind == failure_kind::peer_lost) {
        check_reason(number, what.name.first, *result.why);
      }
      now.finish(ending_of(*result.why));
    }
  });
  return index;
}

inline void world::cancel(int number, int index, bool deadline) {
  oracle_operation& mine = op(number, index);
  if (mine.result != ending::none || mine.withdrawn) return;
  mine.withdrawn = true;
  call(number, mine.rank, [&](node& self) {
    const bool done = self.withdraw(
        mine.operation, deadline ? withdrawal_reason::deadline : withdrawal_reason::cancelled);
    if (!done) {
      hit("W2 cancellation after election: no effect");
      mine.withdrawn = false;
    }
  });
}

inline int world::join(int number, int rank, std::uint32_t set) {
  negotiation& inst = at(number);
  const int index = static_cast<int>(inst.operations.size());
  inst.operations.emplace_back();
  inst.operations.back().rank = rank;
  inst.operations.back().name = {set, "join"};
  const bool was_in = inst.joined[set].contains(rank);
  const node& before = inst.nodes[static_cast<std::size_t>(rank)];
  const bool with_group = has_group(number, rank, set);
  const bool refused = with_group || inspector::left(before) || inspector::joined(before, set) ||
                       inspector::left_set(before, set);
  if (with_group) hit("H2 join where there is a persistent group");
  inst.joined[set].insert(rank);  // it may be the last, and elect
  call(number, rank, [&](node& self) {
    const submission result = self.join(set, static_cast<std::uint64_t>(index) + 1);
    check((result.status == submission_status::refused) == refused, "H2 join in set ", set,
          " on rank ", rank, refused ? " is not refused" : " is refused");
    if (result.status == submission_status::pending) return;
    if (!was_in) at(number).joined[set].erase(rank);
    op(number, index)
        .finish(result.status == submission_status::refused ? ending::refused
                                                            : ending_of(*result.why));
  });
  return index;
}

// Of every other leave, and it tells who has given it.
inline std::string world::give_reason(negotiation& inst, std::uint32_t set, int rank) {
  if (random_.happens(.5)) {
    inst.silent.emplace(set, rank);
    return {};
  }
  std::string why = "rank " + std::to_string(rank) + (set == none ? " ends" : " leaves a set");
  inst.reasons[{set, rank}] = why;
  return why;
}

// What the failure of an operation of a set tells of who has left.
inline void world::check_reason(int number, std::uint32_t set, const verdict& why) {
  const negotiation& inst = at(number);
  if (why.text.empty()) {
    for (const int who : why.ranks.list()) {
      check(inst.silent.contains({none, who}) || inst.silent.contains({set, who}), "L7 rank ", who,
            " has given a reason, which is lost");
    }
    return;
  }
  hit("L7 reason told");
  const auto given = [&](std::uint32_t where) {
    const auto found = inst.reasons.find({where, why.rank});
    return found != inst.reasons.end() && found->second == why.text;
  };
  check(why.ranks.contains(why.rank) && (given(none) || given(set)), "L7 rank ", why.rank,
        " has not given the reason '", why.text, "'");
}

inline void world::leave_set(int number, int rank, std::uint32_t set, bool abandons) {
  negotiation& inst = at(number);
  if (inspector::left(inst.nodes[static_cast<std::size_t>(rank)])) return;
  inst.gone[set].insert(rank);
  if (abandons) inst.abandoned[set].insert(rank);
  const std::string why = give_reason(inst, set, rank);
  call(number, rank, [&](node& self) {
    self.leave_set(set, abandons ? departure::abandoned : departure::drained, why);
  });
}

// Whether the rank has a persistent group in the set, or has asked for one.
inline bool world::has_group(int number, int rank, std::uint32_t set) const {
  bool has = false;
  for (const oracle_operation& one : negotiations_[static_cast<std::size_t>(number)].operations) {
    if (one.rank != rank || one.name.first != set || !one.is_submission) continue;
    const bool fails = one.result != ending::none && one.result != ending::ok;
    if (one.sig.kind == op_kind::group_create && !fails) has = true;
    if (one.sig.kind == op_kind::group_remove && one.elected) has = false;
  }
  return has;
}

// Whether the rank has asked for it to be removed, and this has not failed: it starts it no more.
inline bool world::removes_group(int number, int rank, const full_name& group) const {
  const auto& all = negotiations_[static_cast<std::size_t>(number)].operations;
  return std::any_of(all.begin(), all.end(), [&](const oracle_operation& one) {
    return one.rank == rank && one.name == group && one.sig.kind == op_kind::group_remove &&
           (one.result == ending::none || one.result == ending::ok);
  });
}

// Outside of set 0 a start is a submission [protocol H1], and the group may be removed, which tells
// how many there have been [protocol H5].
inline void world::use_group(task& one, const step& what) {
  if (what.name.first == 0) return start_group(one.negotiation, one.rank, what.name);
  if (removes_group(one.negotiation, one.rank, what.name)) return;
  const full_name start{what.name.first, what.name.second + ": start"};
  step submitted = what;
  if (what.what == step::kind::start) {
    call(one.negotiation, one.rank, [&](node& self) {
      check(!self.start_group(what.name.first, what.name.second), "H1 ", what.name,
            " is started without being agreed on");
    });
    hit("H1 start that is elected");
    submitted.name = start;
    submitted.sig = signature();
    submitted.sig.element_size = 4;
  } else {
    hit("H5 removal");
    submitted.sig = signature();
    submitted.sig.kind = op_kind::group_remove;
    submitted.sig.detail = static_cast<std::uint64_t>(at(one.negotiation).count[{one.rank, start}]);
  }
  const int operation = submit(one.negotiation, one.rank, submitted);
  one.submitted.push_back(operation);
  if (what.wait) one.waits = operation;
}

inline void world::start_group(int number, int rank, const full_name& group) {
  negotiation& inst = at(number);
  const int index = static_cast<int>(inst.operations.size());
  inst.operations.emplace_back();
  inst.operations.back().rank = rank;
  inst.operations.back().name = group;
  std::optional<std::uint64_t> start;
  call(number, rank, [&](node& self) { start = self.start_group(group.first, group.second); });
  if (start) {
    start_persistent(number, group, *start, rank, index);
  } else {
    op(number, index).finish(ending::refused);
  }
}

inline bool world::close(const closer& one) {
  const node& self = at(one.negotiation).nodes[static_cast<std::size_t>(one.rank)];
  if (inspector::left(self)) return false;
  bool done = true;
  for (const int index : one.tasks) done = done && tasks_[static_cast<std::size_t>(index)].done;
  if (!done && !(one.now && random_.happens(.02))) return false;
  if (one.now) at(one.negotiation).left_now.insert(one.rank);
  const std::string why = give_reason(at(one.negotiation), none, one.rank);
  call(one.negotiation, one.rank,
       [&](node& each) { each.leave(one.now ? departure::abandoned : departure::drained, why); });
  return true;
}

// ---- the data plane ----------------------------------------------------------------------------

inline std::size_t world::device_of(int number, int rank) {
  return device_index_.at(
      {at(number).world_rank[static_cast<std::size_t>(rank)], stream ? 0 : number});
}

inline bool world::run_device(std::size_t index) {
  device& here = devices_[index];
  const bool ready = here.queue.ready();
  if (!here.later.empty() && (!ready || random_.real() < .5)) {
    const std::size_t chosen = random_.below(here.later.size());
    posting what = std::move(here.later[chosen]);
    here.later.erase(here.later.begin() + static_cast<std::ptrdiff_t>(chosen));
    here.queue.posted_last(what.name.first + 64U * static_cast<std::uint32_t>(what.negotiation),
                           what.slot);
    start(std::move(what));
    return true;
  }
  if (!ready) return false;
  const start_queue::started next = here.queue.next();
  const auto found = here.waiting.find(next.what.log_count);
  posting what = std::move(found->second);
  here.waiting.erase(found);
  what.slot = next.slot;
  start(std::move(what));
  return true;
}

inline void world::note_start(negotiation& inst, int rank, const std::string& where,
                              std::uint64_t identity) {
  std::vector<std::uint64_t>& order = inst.order[where];
  const std::size_t i = inst.position[{rank, where}]++;
  if (i == order.size()) order.push_back(identity);
  check(order[i] == identity, "P1 rank ", rank, " starts on ", where,
        " something else than others, at position ", i);
}

inline void world::start(posting what) {
  negotiation& inst = at(what.negotiation);
  const std::uint64_t identity = hasher()(what.name)(static_cast<std::uint64_t>(what.number))(
                                     hash_of(what.sig))(what.contributors)
                                     .value();
  // Who is not listed does not see it, so it has an order of its own.
  const bool listed = inst.listed.contains(what.name);
  const std::string set = std::to_string(what.name.first) + (listed ? what.name.second : "");
  const bool two = is_sized(what.sig.kind) && !what.known && !what.is_join;
  execution& run = inst.data[what.log_count];
  if (run.parts.empty()) {
    run.name = what.name;
    run.is_join = what.is_join;
    run.parts.resize(two ? 2 : 1);
  }
  if (what.part == 0 && !listed) note_start(inst, what.rank, "set " + set, identity);
  check(!what.known || inst.vectors.contains(what.reference), "P2 ", what.name, " ", what.number,
        " starts on rank ", what.rank, " before it knows the sizes");
  // MPI's rule for one communicator
  note_start(inst, what.rank,
             set + (what.part == 0 ? " shared" : " slot " + std::to_string(what.slot)),
             hasher()(identity)(what.part).value());
  std::map<int, int>& started = run.parts[what.part];
  started[what.rank] = what.operation;
  if (started.size() < inst.members(what.name).size()) return;
  if (what.part + 1 < run.parts.size()) {  // sizes first, then data
    std::map<int, std::int64_t>& sizes = inst.vectors[what.log_count];
    for (const auto& [rank, index] : started) {
      if (index >= 0) sizes[rank] = op(what.negotiation, index).size;
    }
    for (const auto& [rank, index] : started) {
      posting next = what;
      next.rank = rank;
      next.operation = index;
      next.part = what.part + 1;
      device& there = devices_[device_of(what.negotiation, rank)];
      there.queue.exchanged(what.log_count << 8U | static_cast<std::uint64_t>(what.negotiation));
      there.later.push_back(std::move(next));
    }
    return;
  }
  finished(what.negotiation, what, run);
}

// A collective completes when all have started it.
inline void world::finished(int number, const posting& what, execution& run) {
  negotiation& inst = at(number);
  const std::map<int, int> started = run.parts.back();
  int newest = -1;
  if (what.is_join) {
    std::pair<std::int64_t, int> best{-1, -1};
    for (const auto& [rank, index] : started) {
      best = std::max(best, {op(number, index).size, rank});
    }
    newest = best.second;
    std::set<int> last{newest};
    for (const auto& [log_count, other] : inst.data) {  // ascending
      if (log_count >= what.log_count || other.is_join || other.name.first != what.name.first) {
        continue;
      }
      std::set<int> with_data;
      for (const auto& [rank, index] : other.parts.front()) {
        if (index >= 0) with_data.insert(rank);
      }
      if (!with_data.empty()) last = with_data;
    }
    check(last.contains(newest), "P3 rank ", newest,
          " is called the newest, others brought the last data");
  }
  bool neutral = false;
  for (const auto& [rank, index] : started) {
    neutral = neutral || index < 0;
    const bool stale = what.known && (index < 0 || !inst.vectors[what.reference].contains(rank) ||
                                      inst.vectors[what.reference][rank] != op(number, index).size);
    if (index >= 0) {
      op(number, index).newest = newest;
      op(number, index).finish(ending::ok);
    }
    check(!stale, "P2 ", what.name, " ", what.number, ": stale size of rank ", rank, " used");
  }
  hit(neutral ? "J2 executed with neutral contributions" : "X1 executed");
  if (is_sized(what.sig.kind) && !what.is_join)
    hit(what.known ? "Z3 sizes known" : "Z3 sizes exchanged");
  if (inst.members(what.name).contains(0)) {
    call(number, 0, [](node& self) { self.finished(1); });
  }
}

inline void world::start_persistent(int number, const full_name& group, std::uint64_t k, int rank,
                                    int index) {
  negotiation& inst = at(number);
  std::map<int, int>& started = inst.starts[{group, k}];
  check(!started.contains(rank), "P3 persistent start repeated");
  started[rank] = index;
  if (started.size() < inst.sets[group.first].size()) return;
  for (const int member : inst.sets[group.first]) poll_persistent(number, member);
}

inline void world::poll_persistent(int number, int rank) {
  negotiation& inst = at(number);
  for (const auto& [which, started] : inst.starts) {
    const auto mine = started.find(rank);
    if (mine == started.end() || mine->second < 0 ||
        started.size() < inst.sets[which.first.first].size() ||
        op(number, mine->second).result != ending::none) {
      continue;
    }
    oracle_operation& one = op(number, mine->second);
    if (inst.nodes[static_cast<std::size_t>(rank)].holds_group_completions()) {
      hit("H3 completion held back until DRAIN");
      continue;
    }
    const auto drained = inst.drains.find({rank, which.first});
    one.finish(drained == inst.drains.end() || which.second < drained->second.first
                   ? ending::ok
                   : ending::peer_lost);
    const bool some_neutral = std::any_of(started.begin(), started.end(),
                                          [](const auto& entry) { return entry.second < 0; });
    check(one.result != ending::ok || !some_neutral, "P3 ", which.first, " start ", which.second,
          " succeeded with a neutral contribution");
  }
}

// ---- running -----------------------------------------------------------------------------------

inline void world::run(bool any_slow) {
  bind();
  const std::size_t n = actors.size();
  std::vector<bool> slow(n);
  for (std::size_t i = 0; i < n; ++i) slow[i] = any_slow && random_.happens(.15);
  std::size_t failed = 0;
  for (;;) {
    const std::size_t i = random_.below(n);
    if ((slow[i] && random_.happens(.97)) || !act(actors[i])) {
      if (++failed < 2 * n) continue;
      bool moved = false;
      for (const int each : random_.sample(static_cast<int>(n), static_cast<int>(n))) {
        moved = act(actors[static_cast<std::size_t>(each)]);
        if (moved) break;
      }
      if (!moved && !quiet()) break;
    }
    failed = 0;
    check(++steps_ < 100000, "P4 livelock");
  }
  final();
}

inline void world::settle() {
  for (bool moved = true; moved;) {
    moved = false;
    for (int number = 0; number < static_cast<int>(negotiations_.size()); ++number) {
      const std::vector<int>& parents = at(number).parents;
      for (int rank = 1; rank < static_cast<int>(parents.size()); ++rank) {
        const int parent = parents[static_cast<std::size_t>(rank)];
        moved = flush(number, rank, parent) || moved;
        if (parent == 0 && decides_at_any_time && at(number).options.decides_when_asked) continue;
        moved = flush(number, parent, rank) || moved;
      }
    }
    for (std::size_t i = 0; i < devices_.size(); ++i) moved = run_device(i) || moved;
  }
}

inline bool world::cached(const negotiation& inst, const full_name& name, const signature& sig) {
  const node& top = inst.nodes.front();
  const name_index known = top.log().names.find(name.first, name.second);
  if (known == none) return false;
  for (const entry_index entry : top.log().names[known].entries) {
    if (top.entry(entry).id != none && top.entry(entry).sig == sig) return true;
  }
  return false;
}

inline bool world::quiet() {
  bool decided = false;
  for (int number = 0; number < static_cast<int>(negotiations_.size()); ++number) {
    decided = decide(number) || decided;
  }
  if (decided) return true;
  for (int number = 0; number < static_cast<int>(negotiations_.size()); ++number) {
    negotiation& inst = at(number);
    check(inst.net.in_flight() == 0, "P7 quiet with a message on its way");
    bool thawed = false;
    call(number, 0, [&](node& self) { thawed = self.give_up_plan(); });
    if (thawed) {
      hit("R4 plan given up");
      return true;
    }
    for (const auto& [which, ops] : inst.submitted) {
      const auto& [name, n] = which;
      std::vector<signature> sigs;
      bool waiting = false;
      bool withdrawn = false;
      for (const auto& [rank, index] : ops) {
        const oracle_operation& one = op(number, index);
        if (one.result != ending::none) continue;
        waiting = true;
        withdrawn = withdrawn || one.withdrawn;
        if (std::find(sigs.begin(), sigs.end(), one.sig) == sigs.end()) sigs.push_back(one.sig);
      }
      bool absent = false;
      bool hidden = false;  // a listed member has joined, which its neighbours do not see
      for (const int member : inst.members(name)) {
        hidden = hidden || (waiting && inst.listed.contains(name) && !ops.contains(member) &&
                            inst.joined[name.first].contains(member));
        absent = absent || (!ops.contains(member) && !inst.joined[name.first].contains(member));
      }
      check(!waiting || absent || hidden || sigs.size() > 1, "P4 ", name, " number ", n,
            ": all have submitted it, nothing moves");
      check(!withdrawn, "P4 withdrawal of ", name, " number ", n, " lost");
      if (waiting && !inst.listed.contains(name)) {
        for (const int member : inst.gone[name.first]) {
          check(ops.contains(member) || inst.joined[name.first].contains(member), "P4 ", name,
                " number ", n, " waits for rank ", member, " that has left the set");
        }
      }
      if (sigs.size() < 2 && !hidden) continue;
      std::size_t fresh = 0;
      for (const signature& sig : sigs) fresh += cached(inst, name, sig) ? 0 : 1;
      check(fresh < 2 || inst.options.firsts < 99, "P4 contradiction on ", name, " ", n,
            " not found");
      // at least one cached: the stall query must find it
      const std::uint64_t position = inst.nodes.front().log().position;
      check(inst.asked != position, "P4 stall query missed the contradiction on ", name, " ", n);
      inst.asked = position;
      hit(hidden ? "D2 joined member left to the stall query"
                 : "M3 contradiction left to the stall query");
      call(number, 0, [](node& self) { static_cast<void>(self.request_report()); });
      return true;
    }
    for (int rank = 0; rank < static_cast<int>(inst.nodes.size()); ++rank) {
      const node& self = inst.nodes[static_cast<std::size_t>(rank)];
      const readiness_table& records = inspector::records(self);
      for (std::uint32_t set = 0; set < inst.sets.size(); ++set) {
        for (auto i = records.first(set); i != none; i = records[i].next) {
          const full_name name{set, self.name(records[i].name).text};
          const epoch n = inst.offset[{rank, name}] + records[i].number;
          bool alive = false;
          for (const auto& [who, index] : inst.submitted[{name, n}]) {
            alive = alive || op(number, index).result == ending::none;
          }
          check(alive, "P8 rank ", rank, " keeps a record of ", name, " ", n);
        }
      }
    }
    for (const auto& [which, started] : inst.starts) {
      bool missing = false;
      bool all_joined = true;
      for (const int member : inst.sets[which.first.first]) {
        if (started.contains(member)) continue;
        missing = true;
        all_joined = all_joined && inst.joined[which.first.first].contains(member);
      }
      check(!missing || !all_joined, "P4 start of ", which.first,
            " waits for ranks that have joined");
    }
  }
  if (drain) return false;
  std::vector<const task*> late;
  for (const task& one : tasks_) {
    if (one.done || one.waits < 0) continue;
    if (op(one.negotiation, one.waits).is_submission && !is_finished(one.negotiation, one.waits)) {
      late.push_back(&one);
    }
  }
  if (late.empty()) return false;
  const task& chosen = *random_.choice(late);  // a deadline passes
  negotiation& inst = at(chosen.negotiation);
  const int index = chosen.waits;
  const oracle_operation& mine = op(chosen.negotiation, index);
  const std::map<int, int>& ops = inst.submitted[{mine.name, mine.number}];
  rank_set missing;
  for (const int member : inst.members(mine.name)) {
    if (!ops.contains(member) && !inst.joined[mine.name.first].contains(member)) {
      missing.insert(member);
    }
  }
  inst.exact[{mine.name, mine.number}] = missing;  // nothing moves: known
  hit("W3 deadline when nothing moves");
  cancel(chosen.negotiation, index, true);
  check(op(chosen.negotiation, index).withdrawn, "P4 ", mine.name,
        " elected but never completed on rank ", mine.rank);
  return true;
}

inline void world::final() {
  for (const task& one : tasks_) {
    const bool waits = !one.done && one.waits >= 0;
    check(one.done, "P4 a task of rank ", one.rank, " waits for ever",
          waits ? " for " + op(one.negotiation, one.waits).name.second : std::string());
  }
  for (int number = 0; number < static_cast<int>(negotiations_.size()); ++number) {
    negotiation& inst = at(number);
    for (const node& self : inst.nodes) {
      check(self.released(), "P4 shutdown of rank ", self.shape().rank(), " never ends");
      check(inspector::records(self).size() == 0 && self.pending() == 0, "P8 rank ",
            self.shape().rank(), " ends with records");
      for (const auto& [which, why] : inspector::poison(self)) {
        const std::uint32_t set = self.name(which.first).set;
        check(!inst.gone[set].contains(self.shape().rank()), "P8 rank ", self.shape().rank(),
              " keeps a failure for set ", set, ", which it has left");
      }
    }
    for (const auto& [set, ranks] : inst.gone) {
      check(ranks.size() < inst.sets[set].size() || inst.told_ended[set] == inst.sets[set],
            "P4 set ", set, " never ends on all members");
    }
    for (const auto& [which, ops] : inst.submitted) {
      const auto& [name, n] = which;
      std::set<ending> results;
      std::vector<signature> sigs;
      bool withdrawn = false;
      for (const auto& [rank, index] : ops) {
        const oracle_operation& one = op(number, index);
        results.insert(one.result);
        withdrawn = withdrawn || one.withdrawn;
        if (std::find(sigs.begin(), sigs.end(), one.sig) == sigs.end()) sigs.push_back(one.sig);
      }
      if (ops.empty()) continue;
      check(results.size() == 1, "P3 ", name, " ", n, " ends differently");
      bool lost = false;
      const bool listed = inst.listed.contains(name);
      for (const int member : inst.members(name)) {
        lost = lost || inst.left_now.contains(member) ||
               inst.abandoned[name.first].contains(member) ||
               (!ops.contains(member) && (listed || !inst.joined[name.first].contains(member)));
      }
      const ending result = *results.begin();
      bool reason = false;
      switch (result) {
        case ending::ok:
          reason = !inst.failures.contains(which);
          break;
        case ending::mismatch:
          reason = sigs.size() > 1;
          break;
        case ending::withdrawn:
          reason = withdrawn;
          break;
        case ending::joined:
          reason = ops.size() < inst.members(name).size();
          break;
        case ending::peer_lost:
          reason = lost;
          break;
        case ending::none:
        case ending::refused:
        case ending::data:
          break;
      }
      std::ostringstream text;
      text << "outcome " << result;
      hit(text.str().c_str());
      check(reason && (result == ending::ok || !undisturbed), "P2 ", name, " ", n, " ends with ",
            result, " without a reason");
    }
    for (const auto& [which, started] : inst.starts) {
      for (const auto& [rank, index] : started) {
        if (index < 0) continue;
        check(op(number, index).result != ending::none, "P3 persistent start of rank ", rank,
              " never resumes");
        hit("persistent start resumes");
      }
    }
  }
}

inline world::totals world::submitted() const {
  totals result;
  for (const negotiation& inst : negotiations_) {
    for (const auto& [which, ops] : inst.submitted) {
      result.operations += ops.empty() ? 0 : 1;
      result.submissions += ops.size();
    }
  }
  return result;
}

inline std::uint64_t world::digest() const {
  hasher hash;
  for (const negotiation& inst : negotiations_) {
    for (const node& self : inst.nodes) hash(inspector::digest(self));
    inst.net.for_each([&](int from, int to, const bytes& message) {
      hash(static_cast<std::uint64_t>(from))(static_cast<std::uint64_t>(to));
      hash(std::string(reinterpret_cast<const char*>(message.data()), message.size()));  // NOLINT
    });
    for (const auto& [which, ops] : inst.submitted) {
      hash(which.first)(static_cast<std::uint64_t>(which.second));
      for (const auto& [rank, index] : ops) {
        const oracle_operation& one = inst.operations[static_cast<std::size_t>(index)];
        hash(static_cast<std::uint64_t>(rank))(static_cast<std::uint64_t>(one.result))(
            one.withdrawn);
      }
    }
    for (const auto& [key, off] : inst.offset) {
      hash(static_cast<std::uint64_t>(key.first))(key.second)(static_cast<std::uint64_t>(off));
    }
    for (const auto& [log_count, run] : inst.data) {
      hash(log_count);
      for (const auto& started : run.parts) {
        for (const auto& [rank, index] : started) hash(static_cast<std::uint64_t>(rank));
        hash(77);
      }
    }
    for (const auto& [which, started] : inst.starts) {
      hash(which.second);
      for (const auto& [rank, index] : started) hash(static_cast<std::uint64_t>(rank))(index < 0);
    }
    for (const auto& set : inst.joined) {
      for (const int rank : set) hash(static_cast<std::uint64_t>(rank));
      hash(78);
    }
    hash(inst.asked);
    for (const auto& [set, ranks] : inst.gone) {
      hash(set)(ranks.size());
    }
  }
  for (const task& one : tasks_) hash(one.at)(one.tail)(one.done);
  return hash.value();
}

}  // namespace protocol_test
