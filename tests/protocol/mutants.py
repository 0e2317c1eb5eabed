#!/usr/bin/env python3
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
"""Breaks one rule of the protocol at a time and shows that the checker notices.

    mutants.py [--compiler g++] [--jobs N] [--runs 20000] [--only NAME...] [--list]

Each mutant is a patch of a copy of include/cohort/protocol, of the fake network or of the fake data
plane; the copy is compiled and runs random jobs until one violates a promise. Those that change no
more than bodies of functions share one program, which is told at its start whose bodies to take, so
that all are compiled at once; the others have one each. A mutant that is not found, and a patch that
does not fit the code any more, make the exit status 1. Standard library only.
"""
import pathlib
import sys

sys.dont_write_bytecode = True

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support import mutation  # noqa: E402

AGG, CLIENT = "protocol/node/aggregation.ipp", "protocol/node/client.ipp"
ELECT, LOG = "protocol/node/election.ipp", "protocol/node/log.ipp"
RECEIVE, STALL = "protocol/node/receive.ipp", "protocol/node/stall.ipp"
NODE, OUTBOX = "protocol/node.hpp", "protocol/outbox.hpp"
REPLICA, NAMES = "protocol/replica.hpp", "protocol/name_table.hpp"
QUEUE, NETWORK = "protocol/queues.hpp", "testing/network.hpp"
SIGNATURE, PLANNER = "protocol/signature.hpp", "protocol/fusion_planner.hpp"
WORLD, JOBS = "tests/world.hpp", "tests/jobs.hpp"

FAIL_HERE = """if (!tree_.is_root()) {
    const std::uint32_t mine = log_.names[name].operations.find(number);
    verdict early;
    early.kind = failure_kind::%s;
    if (mine != none) fail_operation(mine, std::make_shared<const verdict>(early));
  }"""

ADVANCE_ALL = """for (record_index index = table_.first(set); index != none;
       index = table_[index].next) {
    advance(index);
  }
"""
SEND_JOIN = """if (all_joined(set) && !tree_.is_root()) {
    wire::writer out = up_.writer();
    out.byte(static_cast<std::uint8_t>(part::join));
    out.varint(set);
  }
"""

# name: (rule, (file, old, new)...). White space does not matter in `old`, which must occur once.
MUTANTS = {
    "no-generation-check": ("G2", (RECEIVE, "if (head.position < log_.generation) return;", "")),
    "no-reannounce": ("G3", (LOG, "announce_own(one); if (one.withdrawn)", "if (one.withdrawn)")),
    "no-rejoin": ("G3", (LOG, "if (joins_[set].active && !log_.has_ended(set))"
                          " on_join(tree_.self(), set);", "")),
    "no-rewithdraw": ("G3", (LOG, "if (one.withdrawn) on_withdrawal(", "if (false) on_withdrawal(")),
    "no-recount": ("G3", (LOG, "if (holds_group_completions()) send_counts();", "")),
    "no-releave": ("G3", (LOG, "if (leaving_) send_leave();", "")),
    "no-edge-reset": ("T2", (LOG, "log_.names[name].sent = -1;", "")),
    "bits-out-of-order": ("T2", (OUTBOX, "if (implied && first && who", "if (implied && who"),
                          ("protocol/message_reader.hpp", "words_[word] |= bit;",
                           "if ((words_[word] & bit) != 0) return; words_[word] |= bit;")),
    "behind-forgotten": ("G1", (LOG, "record.next -= change.by;",
                                "record.next = std::max<epoch>(0, record.next - change.by);")),
    "failed-forgotten": ("G1", (REPLICA, "for (epoch& number : record.above) number -= record.base;",
                                "record.above.clear();")),
    "poison-not-renumbered": ("G1", (LOG, "poison.emplace(key{which.first,"
                                     " which.second - log_.names[which.first].base}",
                                     "poison.emplace(key{which.first, which.second}")),
    "left-not-renumbered": ("G1", (REPLICA, "moved.emplace(name, number - names[name].base);",
                                   "moved.emplace(name, number);")),
    "unbounded-names": ("G1", (ELECT, "cache_full_ || log_.names_in_use() > options_.name_capacity",
                               "cache_full_")),
    "unbounded-cache": ("C1", (ELECT, "item.define = defined < options_.cache_capacity;",
                               "item.define = true;")),
    "local-use": ("C2", (CLIENT, "std::uint64_t sizes = 0; if (entry.id != none",
                         "std::uint64_t sizes = 0; ++log_.names.entry(one.entry).last_use;"
                         "if (entry.id != none")),
    "log-reordered": ("T1", (OUTBOX, "log_.insert(log_.end(), item.begin()",
                             "log_.insert(log_.begin(), item.begin()")),
    "non-fifo": ("T1", (WORLD, "const cohort::testing::network_options net;",
                        "cohort::testing::network_options net; net.overtaking = true;")),
    "two-tags": ("T1", (NETWORK, "options_.overtaking ? random_.below(found->second.size()) : 0",
                        "[&]() -> std::size_t { const bool big = random_.below(2) != 0;"
                        "for (std::size_t i = 0; i < found->second.size(); ++i) {"
                        "if ((found->second[i].what.message.size() > 24) == big) return i; }"
                        "return 0; }()")),
    "no-poison": ("E3", (LOG, "else if (poison_.emplace(key{name, number}, why).second)",
                         "else if (false)"),
                  (CLIENT, "if (log_.resolved(name, number))", "if (false)")),
    "skip-epoch": ("E3", (LOG, "else if (poison_.emplace(key{name, number}, why).second) {",
                          "else if ((log_.names[name].next = number + 1, false)) {")),
    "give-back": ("E1", (CLIENT, "one.withdrawn = true;",
                         "one.withdrawn = true; --log_.names[one.name].next;")),
    "refuse-duplicate": ("S3", (CLIENT, "const epoch number = log_.names[name].next++;",
                                "if (!log_.names[name].operations.empty()) {"
                                "result.status = submission_status::refused; return result; }"
                                "const epoch number = log_.names[name].next++;")),
    "submit-while-joined": ("S2", (CLIENT, "leaving_ || joins_[set].active ||", "leaving_ ||")),
    "late-announce": ("A3", (AGG, "if (log_.settled(name, number)) return;  // [protocol A3]", "")),
    "late-withdraw": ("W1", (AGG, "if (log_.settled(name, number)) return;  // [protocol W1]", "")),
    "late-contradiction": ("M1", (AGG, "std::vector<side> sides) {"
                                  " if (log_.settled(name, number)) return;",
                                  "std::vector<side> sides) {")),
    "deadline-unasked": ("W3", (AGG, "if (!query_.running()) start_query(++queries_,",
                                "if (false) start_query(++queries_,")),
    "deadline-forgotten": ("W3", (STALL, "if (!overdue_.empty()) start_query(",
                                  "if (false) start_query(")),
    "eager-cancel": ("W2", (CLIENT, "on_withdrawal(one.name, one.number, tree_.rank(), reason);",
                            "on_withdrawal(one.name, one.number, tree_.rank(), reason);"
                            "verdict early; early.kind = failure_kind::withdrawn;"
                            "if (one.name != none && one.turn == which.turn)"
                            "fail_operation(which.slot, std::make_shared<const verdict>(early));")),
    "inner-withdraw": ("W1", (AGG, "rec.withdrawn = true;",
                              "rec.withdrawn = true; " + FAIL_HERE % "withdrawn")),
    "local-mismatch": ("M2", (AGG, "rec.bad = true;", "rec.bad = true; " + FAIL_HERE % "mismatch")),
    "no-first-sight": ("A2", (AGG, "else if (!tree_.is_root() && !rec.first &&",
                              "else if (false && !rec.first &&")),
    "no-stall-signature": ("M3", (STALL, "if (sides.size() > 1) contradict(",
                                  "if (false) contradict(")),
    "any-epoch": ("R1", (AGG, "promote(rec.name);", "planner_.add(log_.names, table_, index);")),
    "strict-plan": ("R4", (CLIENT, "if (!planner_.give_up_plan(log_.names, table_)) return false;",
                           "return false;")),
    "decide-unasked": ("F1", (ELECT, "if (!options_.decides_when_asked) decide();", "decide();")),
    "decide-forgotten": ("F1", (WORLD, "decided = decide(number) || decided;", "")),
    "failed-chosen": ("R1", (PLANNER, "table[one.index].arrival == one.arrival &&"
                             " table[one.index].ready", "table[one.index].name != none")),
    "one-communicator": ("X2", (WORLD, 'what.part == 0 ? " shared" :',
                                'true ? std::string(" one") :')),
    "local-order": ("X1", (QUEUE, "{ waiting_.push_back(what); }",
                           "{ static unsigned n = 0; waiting_.push_back(what);"
                           " if (++n % 3 != 0) return; steady_fifo<item> turned;"
                           " turned.push_back(what);"
                           " for (; waiting_.size() > 1; waiting_.pop_front())"
                           " turned.push_back(waiting_.front());"
                           " waiting_ = turned; }")),
    "sizes-at-submit": ("Z1", (WORLD, "now.operation = result.operation;",
                               "now.operation = result.operation; if (is_sized(what.sig.kind))"
                               ' note_start(at(number), rank, "0 shared", hasher()(what.name)('
                               "static_cast<std::uint64_t>(now.number)).value());")),
    "sizes-own": ("Z2", (CLIENT, "entry.own_reference == entry.reference &&", "")),
    "sizes-any-reference": ("Z3", (ELECT, "rec.sizes != 0 && rec.sizes == entry.reference;",
                                   "rec.sizes != 0;")),
    "sizes-unawaited": ("Z4", (QUEUE, "if (head.reference != 0 &&", "if (false &&")),
    "sizes-joined": ("Z3", (ELECT, "is_sized(entry.sig.kind) && item.whole &&",
                            "is_sized(entry.sig.kind) &&")),
    "join-counted": ("J2", (AGG, "if (((rec.done | table_.joined(number)) & set.sources) =="
                            " set.sources) {",
                            "if (__builtin_popcountll(rec.done & set.sources) +"
                            "__builtin_popcountll(table_.joined(number) & set.sources) >="
                            "__builtin_popcountll(set.sources)) {")),
    "join-first": ("J3", (AGG, ADVANCE_ALL + SEND_JOIN, SEND_JOIN + ADVANCE_ALL)),
    "join-last": ("J4", (LOG, "start.count = join.took;", "start.count = 0;")),
    "join-too-soon": ("J4", (ELECT, "log_.has_leaver(set) || !table_.empty(set)) continue;",
                             "log_.has_leaver(set)) continue;")),
    "joined-after-left": ("J4", (ELECT, "!all_joined(set) || log_.has_leaver(set) ||",
                                 "!all_joined(set) ||")),
    "join-not-aligned": ("J5", (LOG, "record.next = record.base;", ";")),
    "doomed-unchecked": ("J6", (ELECT, "if (rec.arrival != one.arrival) continue;", "")),
    "root-joined": ("J6", (ELECT, "(sig.root >= 0 &&", "(false &&")),
    "leave-when-drained": ("L1", (WORLD, "if (inspector::left(self)) return false;",
                                  "if (inspector::left(self) || self.pending() != 0)"
                                  " return false;")),
    "leave-no-list": ("L2", (CLIENT, "if (one.how == departure::drained) {", "if (false) {")),
    "first-left-only": ("L2", (AGG, "std::includes(pending.begin(), pending.end(),"
                               " log_.live(set).begin(), log_.live(set).end())", "true")),
    "left-keeps-records": ("L3", (LOG, "if (log_.dead(rec.name, rec.number)) drop_record(",
                                  "if (false) drop_record(")),
    "left-keeps-join": ("L4", (LOG, "if (join.active && !join.failed) {", "if (false) {")),
    "left-ends-join": ("L4", (LOG, "join.failed = true;", "join.active = false;")),
    "left-kills-joined": ("L4", (CLIENT, "if (joins_[set].failed) one.stuck.push_back(set);", "")),
    "close-early": ("L5", (ELECT, "log_.nothing_live() && promised_", "promised_")),
    "close-undrained": ("L5", (ELECT, "promised_.empty() && drained)",
                               "promised_.empty() && (drained || true))")),
    "no-end": ("L6", (RECEIVE, "log_.closed && ended_ == bit(tree_.child_count()) - 1 &&",
                      "log_.closed &&")),
    "window": ("F1", (NODE, "bool withdrawn = false;", "bool withdrawn = false; bool told = false;"),
               (CLIENT, "one.token = token;", "one.token = token; one.told = false;"),
               (CLIENT, "std::uint64_t sizes = 0; if (entry.id != none",
                "std::size_t told = 0; for (const operation& each : operations_)"
                " told += each.name != none && each.told ? 1 : 0;"
                "if (told > 1 && !one.told) return; one.told = true;"
                "std::uint64_t sizes = 0; if (entry.id != none"),
               (RECEIVE, "++self.log_.position;",
                "++self.log_.position; self.for_each_operation([this](std::uint32_t slot) {"
                " if (!self.operations_[slot].told) self.announce_own(self.operations_[slot]); });"),
               (WORLD, "check(fresh < 2 ||", "check(true || fresh < 2 ||"),
               (WORLD, "if (sigs.size() < 2 && !hidden) continue;", "continue;")),
    "no-drain": ("H4", (LOG, "if (first && log_.any_leaver() &&", "if (false &&")),
    "start-after-left": ("H3", (CLIENT, "if (leaving_ || log_.any_leaver() ||",
                                "if (leaving_ || groups_.frozen ||")),
    "no-park": ("H3", (WORLD, ".holds_group_completions()) {",
                       ".holds_group_completions() && false) {")),
    "query-without-joins": ("Q1", (STALL, "if (source == tree_.self() ||"
                                   " tree_.is_leaf_child(source)) {", "if (false) {")),
    "join-persistent": ("H2", (CLIENT, "refuses(set) || has_group(set)", "refuses(set)")),
    "join-persistent-in-set": ("H2", (CLIENT, "refuses(set) || has_group(set)",
                                      "refuses(set) || (set == 0 && has_group(set))")),
    "join-while-asked-for": ("H2", (CLIENT, "return one.name != none && log_.names[one.name].set"
                                    " == set &&", "return false &&")),
    "starts-of-sets-counted": ("H1", (NODE, "return log_.names[group].set == 0;", "return true;")),
    "set-keeps-groups": ("P8", (LOG, "if (record.set == set) --record.held_by;"
                                " return record.set == set; }); leavers_",
                                "static_cast<void>(record); return false; }); leavers_")),
    "persistent-joined": ("H2", (SIGNATURE, "sig.kind == op_kind::group_create ||", "")),
    "listed-left": ("D2", (AGG, "if (lacking.empty()) return;", "if (true) return;")),
    "listed-promised": ("D2", (AGG, "lacking.subtract(wanted->second);", "")),
    "listed-closed": ("D2", (ELECT, "promised_.empty() &&", "")),
    "listed-joined": ("D2", (STALL, "if (!why.ranks.empty()) emit_failure(",
                             "if (false) emit_failure(")),
    "listed-poison": ("D2", (LOG, "else if (members_of(name).contains_me &&",
                             "else if (sets_[set].contains_me &&"),
                      (NAMES, "record.next > 0 ||", "record.next != 0 ||"),
                      (WORLD, "if (drain) return false;",
                       "for (const negotiation& inst : negotiations_) for (const node& self : inst.nodes)"
                       " for (const auto& [which, why] : inspector::poison(self))"
                       " check(!self.name(which.first).listed ||"
                       " self.name(which.first).listed->contains_me, \"P8 useless poison\");"
                       "if (drain) return false;")),
    "set-of-members": ("D1", (LOG, "if (entry.sig.kind == op_kind::set_add) start.made ="
                              " add_set(members_of(name).members);",
                              "if (entry.sig.kind == op_kind::set_add && members_of(name)"
                              ".contains_me) start.made = add_set(members_of(name).members);")),
    "set-of-leavers": ("D1", (LOG, "if (tree_.is_root() && left_.intersects("
                              "sets_[number].members)) {", "if (false) {")),
    "set-unasked": ("D1", (LOG, "query_.add_set();", "")),
    "set-left-by-all": ("D2", (LOG, "(one.set != none && one.set != set) ||", ""),
                        (AGG, "(one.set != none && one.set != set) ||", "")),
    "set-left-unlogged": ("D2", (AGG, "(one.set != none && one.set != set) ||", "true ||")),
    "set-left-no-list": ("D2", (CLIENT, "if (only != none && log_.names[operations_[slot].name].set"
                                " != only) return;", "if (only != none) return;")),
    "set-no-releave": ("G3", (LOG, "if (left_sets_[set] && !log_.has_ended(set))", "if (false)")),
    "set-ends-early": ("D2", (ELECT, "promised || !log_.nothing_live(set) ||", "")),
    "set-ends-occupied": ("D2", (ELECT, "!left_of(set).includes(sets_[set].members)", "false")),
    "set-ends-twice": ("D2", (AGG, "if (one.set != none && log_.has_ended(one.set)) return;", "")),
    "set-keeps-poison": ("D2", (LOG, "&& !left_sets_[set]) {", ") {")),
    "set-accepts": ("S2", (CLIENT, "joins_[set].active || left_sets_[set] ||",
                           "joins_[set].active ||")),
    "reason-of-first": ("L7", (CLIENT, "why.rank = first->rank;",
                               "why.rank = why.ranks.list().front();")),
    "reasons-joined": ("L7", (OUTBOX, "&& other.why == one.why", "")),
    "reason-not-kept": ("L7", (LOG, "note_reason(one);", "")),
    "independent-sets": ("D1", (JOBS, "layout = {{everyone, some(), some()}};",
                                "layout = {{some()}, {some()}};")),
}


if __name__ == "__main__":
    sys.exit(mutation.main(__doc__, MUTANTS, mutation.checker(
        "protocol", layers=("core", "protocol", "testing"),
        headers=("protocol.hpp",), files=("jobs.cpp", "jobs.hpp", "world.hpp", "support.hpp"))))
