#!/usr/bin/env python3
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
"""Breaks one rule of the task graph at a time and shows that the checker notices.

    mutants.py [--compiler g++] [--jobs N] [--runs 20000] [--only NAME...] [--list]

Each mutant is a patch of a copy of include/cohort/graph/machine, or of what the tests put in the
place of the network and the runtime; the copy is compiled and runs random jobs until one violates
a promise. Those that change no more than bodies of functions share one program, which is told at
its start whose bodies to take, so that all are compiled at once; the others have one each. A mutant
that is not found, and a patch that does not fit the code any more, make the exit status 1. Standard
library only.
"""
import pathlib
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support import mutation  # noqa: E402

NODE = "graph/machine/node/"
ANNOUNCER, AWAITS, ENDS = NODE + "announcer.ipp", NODE + "awaits.ipp", NODE + "ends.ipp"
FRONT, HOME, RECEIVE = NODE + "front.ipp", NODE + "home.ipp", NODE + "receive.ipp"
TAKE, TRANSFER, VALUES = NODE + "take.ipp", NODE + "transfer.ipp", NODE + "values.ipp"
WAVE, ROOT = NODE + "wave.ipp", "graph/machine/wave.hpp"
ENDPOINT, HASH = "graph/machine/endpoint.hpp", "graph/machine/hash.hpp"
MESSAGE, TAGS = "graph/machine/message.hpp", "graph/machine/tag_lists.hpp"
TABLE, HEADER = "graph/machine/record_table.hpp", "graph/machine/node.hpp"
PLACE, NET = "tests/place.hpp", "tests/transport.hpp"

# name: (rule, (file, old, new)...). White space does not matter in `old`, which must occur once.
MUTANTS = {
    # ---- names, spawn and announce
    "placement-unseen": ("K3", (ROOT, "if (known.size() > 1) one.divergences",
                                "if (known.size() > 9) one.divergences")),
    "placement-lost": ("K3", (ROOT, "for (named_family& one : other.named) {",
                              "for (named_family& one : std::vector<named_family>()) {")),
    "placement-once": ("K3", (WAVE, "!one.named || std::exchange(one.told, true)",
                              "!one.named || told_options_ || std::exchange(one.told, true)")),
    "options-untold": ("K3", (WAVE, "all.named.back().facts.placement = text;", "")),
    "stale-asked": ("K4", (PLACE, "if (next.window < window_) return write(", "if (false) return write(")),
    "spawn-twice": ("S2", (FRONT, "if (one.spawned) return spawn_again(at, made, {});", "")),
    "local-divergence": ("S2", (FRONT, "report_own(task, false, text);", "")),
    "spawn-cancelled": ("S4", (FRONT, "if (cancelled_ || closed_) return {refused_by_end()};"
                               " // [graph S4] const index at = records_.make(task);"
                               " const bool here", "const index at = records_.make(task);"
                               " const bool here")),
    "put-anywhere": ("S3", (FRONT, "if (task.what.home != rank_) {", "if (false) {")),
    "refused-silent": ("S5", (FRONT, "report_own(at, true, text);", "")),
    "both-uses": ("S5", (FRONT, "const std::string wrong = wrong_use(definitions_[made]); !wrong.empty()",
                         "const std::string wrong; !wrong.empty()")),
    "local-anywhere": ("S5", (FRONT, "if (!here && !what.travels) return", "if (false) return")),
    "put-counted": ("A1", (FRONT, "declare(at, made, rank_, value);",
                           "declare(at, made, rank_, value); own_.push_back(at);")),
    "local-counted": ("A1", (FRONT, "if (ranks_ > 1 && what.travels) own_.push_back(at);",
                             "if (ranks_ > 1) own_.push_back(at);")),
    "digest-ordered": ("A2", (HASH, "++count; sum.low += one.low;",
                              "++count; sum.low = sum.low * 31 + one.low;")),
    "digest-of-keys": ("A2", (ANNOUNCER, "return hash.finish();",
                              "return hasher().name(records_[task].what).finish();")),
    "no-comparison": ("A3", (ANNOUNCER, "if (!agrees) send(", "if (false) send(")),
    "no-list": ("A4", (ANNOUNCER, "one.fresh = false; send_list(from);", "one.fresh = false;")),
    "list-of-news": ("A4", (ANNOUNCER, "one.fresh = false; send_list(from);",
                            "one.fresh = false; one.unlisted.clear();")),
    "decide-twice": ("D1", (HOME, "if (!one.decided) {", "if (true) {")),
    "divergence-unseen": ("D2", (HOME, "if (which != one.definition || has_diverged(task))"
                                 " diverged_.push_back(task);", "")),
    # ---- values
    "want-not-parked": ("W2", (VALUES, "asking.asked = true;", "")),
    "value-twice": ("W3", (VALUES, "if (std::exchange(one.sent, true)) return;"
                           " const content_ptr& what", "one.sent = true; const content_ptr& what")),
    "verdict-remembered": ("W4", (WAVE, "known_now(records_[value]); // [graph W4]", ""),
                           (WAVE, "peers_[at].asked = false; // not remembered", "// not")),
    "verdict-final": ("W4", (WAVE, "if (records_[value].decided) continue;",
                             "if (records_[value].decided) continue; records_[value].decided = true;")),
    "push-to-all": ("U1", (VALUES, "peer_of(value, to).consumer = true;",
                           "for (int all = 0; all < ranks_; ++all)"
                           " if (all != rank_) peer_of(value, all).consumer = true;")),
    "credit-unchecked": ("U2", (VALUES, "&& with.credit >= size", "")),
    "credit-kept": ("U2", (VALUES, "with.credit -= size;", "")),
    "credit-doubled": ("U3", (VALUES, "from.owed += one.value->bytes().size();",
                              "from.owed += 2 * one.value->bytes().size();")),
    "hash-unsent": ("U4", (VALUES, "one.hash = hash_to_send(value);", "")),
    "hash-unoffered": ("U4", (TRANSFER, "one.value->bytes().size(), hash_to_send(value)}",
                              "one.value->bytes().size(), std::nullopt}")),
    "hash-unread": ("U4", (VALUES, "if (one.hash) hashes_[value] = *one.hash;", "")),
    "hashes-kept": ("R2", (WAVE, "hashes_.clear();", "")),
    "offer-parked": ("L2", (TRANSFER, "if (what.wanted) { forget_want",
                            "if (false) { forget_want")),
    "parked-offer-lost": ("L2", (TRANSFER, "offers_[value] = static_cast<std::size_t>(one.size);",
                                 "")),
    "tag-shared": ("L2", (TAGS, "one.used[tag] = what; return std::pair(what, tag);",
                          "one.used[tag / 2] = what; return std::pair(what, tag / 2);")),
    "tag-of-sender": ("L2", (TAGS, "one.free.push_back(tag); return what;",
                             "senders_[(static_cast<std::size_t>(from) + 1) % senders_.size()]"
                             ".free.push_back(tag); return what;")),
    "tag-queue-stuck": ("L2", (ENDPOINT, "what->node->bulk(from, what->value, std::move(bytes));"
                               " grant_next(from);",
                               "what->node->bulk(from, what->value, std::move(bytes));")),
    "inputs-not-held": ("R1", (HOME, "what.inputs()[i].what = value.value; // [graph R1]", ";"),
                        (HOME, "known.inputs()[at - definitions_.first_edge(task.definition)].what"
                         " = what;", "static_cast<void>(known);"),
                        (HOME, "if (!one.takes) return run; for",
                         "for (index i = 0; i < what.count; ++i)"
                         " if (run.uses[i] != use_kind::after)"
                         " run.inputs[i].what = records_[what.edges()[i].value].value;"
                         "if (!one.takes) return run; for")),
    "keep-values": ("R2", (WAVE, "records_.clear(); definitions_.clear();", "")),
    "again-keeps-values": ("R2", (WAVE, "one.value = nullptr;", "")),
    "claims-kept": ("R2", (WAVE, "one.awaits = one.taker = one.declared", "one.awaits = one.declared")),
    "again-old-sources": ("O4", (WAVE, "if (one.source) one.decided = one.source = false;", "")),
    "again-own": ("O4", (WAVE, "if (one.source) one.decided",
                         "if (one.source || !one.spawned) one.decided")),
    # ---- take
    "claim-of-the-last": ("M1", (TAKE, "takers_[at].next = who; break;",
                                 "takers_[who].next = one.taker; one.taker = who; break;")),
    "claim-unanswered": ("M1", (TAKE, "takers_[at].next = who; break;",
                                "takers_[at].next = who; return;")),
    "claim-not-awaited": ("M2", (HOME, "one.missing != 0 || one.unclaimed != 0", "one.missing != 0")),
    "claim-of-await": ("M2", (AWAITS, "if (takes && !has_claim(slot)) return;", "")),
    "second-taker-waits": ("M2", (TAKE, "} else if (records_[task].state == task_state::waiting) {"
                                  " finish(task, taken(value, winner, task_text(task))); }", "}")),
    "release-early": ("M3", (HOME, "if (one.state != task_state::waiting || one.missing != 0 ||"
                             " one.unclaimed != 0) return;",
                             "if (one.state != task_state::waiting) return;"
                             " for (const edge& each : definitions_[one.definition].edges()) {"
                             " if (each.use == use_kind::take && !each.unclaimed &&"
                             " records_[each.value].value) hand_over(each.value); }"
                             " if (one.missing != 0 || one.unclaimed != 0) return;"),
                      (HOME, "if (each.use == use_kind::take) hand_over(each.value); // [graph M3]",
                       "")),
    "release-never": ("M3", (TAKE, "send(one.what.home, message_kind::release,"
                             " release_message{one.what});", "")),
    "offered-dropped": ("M3", (TAKE, "if (has_open_offers(value)) held_[value] = std::move(what);",
                               "")),
    "moved-shared": ("M3", (HOME, "&& each.what.use_count() == 1;", ";")),
    "moved-offered": ("M3", (HOME, "&& each.what.use_count() == 1;",
                             "&& each.what.use_count() =="
                             " 1 + held_.count(what.edges()[i].value);")),
    "moved-sending": ("M3", (TRANSFER, "owner_.begin_sending(from, tag, what);", "")),
    "taken-unanswered": ("M4", (VALUES, "if (!asking.sent) refuse_late(value, from);", "")),
    "taken-forgotten": ("M4", (VALUES, "if (what.gone) {", "if (false) {")),
    "taken-here": ("M4", (HOME, "if (gone != none) { // [graph M4]", "if (false) {")),
    # ---- failures
    "failure-stays": ("F2", (HOME, "finish(each.owner, what); // [graph F2]", "")),
    "root-lost": ("F2", (HOME, "finish(each.owner, what); // [graph F2]",
                         "{ failure own = *what->failed(); own.root = task.what;"
                         " finish(each.owner, content_ptr(new failed_content(own))); }")),
    "recursion": ("F3", (HOME, "wakes_.push_back({task, std::move(what)});", "wake(task, what);")),
    "fail-slow": ("F4", (HOME, "first_failure_here_ = why;", "")),
    "cancel-untold": ("C1", (ENDS, "tell && to < ranks_", "false && to < ranks_")),
    "cancelled-runs": ("C2", (ENDS, "ready_.clear();", "")),
    "cancelled-starts": ("C3", (RECEIVE, "if (cancelled_ && !ends) return;", "")),
    # ---- the wave
    "one-wave": ("T4", (ROOT, "all.sent == all.received && last_ == sums;",
                        "all.sent == all.received;")),
    "unequal-counts": ("T4", (ROOT, "all.sent == all.received && last_ == sums;", "last_ == sums;")),
    "no-not-spawned": ("T5", (ROOT, "if (!all.unknown.empty()) {", "if (false) {")),
    "no-cycle": ("T5", (ROOT, "else if (all.waiting != 0) {", "else if (false) {")),
    "cycle-first": ("T5", (ROOT, "if (!all.unknown.empty()) {",
                           "if (!all.unknown.empty() && all.waiting == 0) {")),
    "close-of-all": ("T8", (ROOT, "(all.kinds & waits::close) != 0 ? verdict_kind::close",
                            "(all.kinds & waits::close) != 0 && (all.kinds & waits::fence) == 0"
                            " ? verdict_kind::close")),
    "again-of-one": ("T8", (ROOT, "(all.kinds & waits::fence) != 0 ? verdict_kind::fence",
                            "(all.kinds & waits::fence) != 0 && (all.kinds & waits::again) == 0"
                            " ? verdict_kind::fence")),
    "uncounted-kind": ("T1", (MESSAGE, "return kind < message_kind::up; } /// Whether",
                              "return kind < message_kind::up && kind != message_kind::want; }"
                               " /// Whether")),
    "uncounted-data": ("T1", (TRANSFER, "++sent_;", ""), (TRANSFER, "++received_;", "")),
    "grant-refused": ("L3", (TRANSFER, "peer& to = peer_of(value, from);",
                             "peer& to = peer_of(value, from); if (cancelled_) return;")),
    "passive-running": ("T2", (HEADER, "busy_ == 0 && running_ == 0 &&", "busy_ == 0 &&")),
    "patient-forever": ("T3", (WAVE, "if (has_contribution() && contribute()) settle();", "")),
    "passive-unasked": ("T2", (RECEIVE, "flush_wants();", ""),
                        (WAVE, "if (!idle() || unsent_count_ != 0 ||", "if (!idle() ||")),
    "passive-unannounced": ("T2", (RECEIVE, "flush_announcements();", ""),
                            (WAVE, "!fresh_.empty() || compare_count_ != 0", "compare_count_ != 0")),
    "passive-uncompared": ("T2", (RECEIVE, "flush_comparisons();", ""),
                           (WAVE, "compare_count_ != 0 || queued_ != 0", "queued_ != 0")),
    "passive-queued": ("T2", (WAVE, "compare_count_ != 0 || queued_ != 0", "compare_count_ != 0")),
    "wave-without-children": ("T3", (WAVE, "if (!ups_[static_cast<std::size_t>(i)]) return false;", ""),
                              (WAVE, "all.add(*ups_[static_cast<std::size_t>(i)]);",
                               "if (ups_[static_cast<std::size_t>(i)])"
                               " all.add(*ups_[static_cast<std::size_t>(i)]);")),
    "verdict-partial": ("T6", (WAVE, "if (records_[task].state != task_state::waiting) return;"
                               " const stored_definition& known",
                               "if (records_[task].state != task_state::waiting ||"
                               " records_[task].missing > 1) return;"
                               " const stored_definition& known")),
    "want-remembered": ("T6", (WAVE, "records_[value].wanted = false;",
                               "if (records_[value].waiters != none) records_[value].wanted = false;")),
    "no-epoch": ("T7", (RECEIVE, "if (waits_for_epoch(kind) && epoch > epoch_) {", "if (false) {")),
    "epoch-of-windows": ("T7", (WAVE, "++epoch_;", "if (what.kind == verdict_kind::fence) ++epoch_;")),
    "cancel-parked": ("T7", (MESSAGE, "&& kind != message_kind::cancel;", ";")),
    "closed-untold": ("T8", (WAVE, "report_.closed = asked && *asked < how;", "")),
    # ---- loss
    "lost-heard": ("X1", (ENDPOINT, "if (is_lost(from)) return; // [graph X1] wire::reader",
                          "wire::reader"),
                   (RECEIVE, "if (accounts_[static_cast<std::size_t>(from)].lost) return;", "")),
    "no-goodbye": ("X2", (ENDS, "send(to, message_kind::cancel, cancel_message{true, *cause_});", "")),
    "leave-at-once": ("X3", (ENDS, "if (one.receives != 0 || (!one.lost && !one.goodbye)) return;", "")),
    "leave-granted": ("X3", (ENDS, "if (one.receives != 0 || (!one.lost && !one.goodbye)) return;",
                             "if (!one.lost && !one.goodbye) return;")),
    "closed-silent": ("X4", (ENDPOINT, "out_.put(from, scope, message_kind::cancel, 0, body);", "")),
    # ---- scopes and producers
    "unopened-lost": ("O1", (ENDPOINT, "parked_[scope].push_back("
                             "{from, epoch, kind, {body.begin(), body.end()}});", "")),
    "reopened-late": ("O1", (ENDPOINT, "scope.opening <= last->second;",
                             "scope.opening <= last->second + 1;")),
    "fork-uncounted": ("O3", (AWAITS, "++busy_; for (producer who = 1", "for (producer who = 1")),
    "withdrawn-resumed": ("C4", (AWAITS, "free_await(slot); settle(); }", "settle(); }")),
    # ---- the network
    "non-fifo": ("network", (NET, "packet result = std::move(queue.front()); queue.pop_front();",
                             "packet result = std::move(queue.back()); queue.pop_back();")),
}

if __name__ == "__main__":
    sys.exit(mutation.main(__doc__, MUTANTS, mutation.checker(
        "graph", layers=("core", "graph"), headers=(),
        files=("actors.hpp", "checks.hpp", "inspector.hpp", "job.hpp", "jobs.cpp", "jobs.hpp",
               "notes.hpp", "oracle.hpp", "packets.hpp", "place.hpp", "read_packet.hpp", "small.hpp",
               "transport.hpp", "values.hpp", "worker.hpp", "world.hpp"))))
