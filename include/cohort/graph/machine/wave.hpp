// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// The termination wave: what the ranks of a subtree contribute, and what the root makes of it.

#include <cohort/graph/machine/content.hpp>
#include <cohort/graph/machine/message.hpp>
#include <cohort/graph/machine/names.hpp>
#include <cohort/graph/machine/report.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace cohort::graph::machine {

/// Something for the report of the window: a divergence, or a refused spawn (graph D2, S2, S5).
struct report_item {
  key what;
  std::uint32_t rank = 0;  ///< that reports it, with `what` once: a later one replaces an earlier
  bool refused = false;
  std::string task;
  std::string text;
};
/// What a rank has named (graph K3); the options of the scope are a family without a name.
struct named_family {
  family_facts facts;
  std::uint32_t rank = 0;
};
struct failed_task {
  key what;
  failure why;
};

/// What a program waits for, as bits.
namespace waits {
inline constexpr std::uint8_t await = 1;
inline constexpr std::uint8_t again = 2;
inline constexpr std::uint8_t fence = 4;
inline constexpr std::uint8_t close = 8;
[[nodiscard]] inline std::uint8_t of(window_end how) noexcept {
  return how == window_end::close ? close : how == window_end::fence ? fence : again;
}
}  // namespace waits

/// UP: of one rank, or of all in a subtree.
struct contribution {
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  std::uint64_t waiting = 0;         ///< tasks
  std::uint64_t failed = 0;          ///< tasks
  std::uint8_t kinds = 0;            ///< what programs wait for
  std::vector<key> unknown;          ///< wanted, and not spawned
  std::vector<report_item> reports;  ///< since the last contribution
  std::vector<named_family> named;   ///< since the last contribution (graph K3)
  std::optional<failed_task> first_failure;
  std::optional<failure> cancelled;

  void add(contribution other) {
    sent += other.sent;
    received += other.received;
    waiting += other.waiting;
    failed += other.failed;
    kinds |= other.kinds;
    unknown.insert(unknown.end(), other.unknown.begin(), other.unknown.end());
    for (report_item& one : other.reports) reports.push_back(std::move(one));
    for (named_family& one : other.named) {
      const auto same = std::find_if(named.begin(), named.end(), [&](const named_family& each) {
        return each.facts == one.facts;
      });
      if (same == named.end()) {
        named.push_back(std::move(one));
      } else {
        same->rank = std::min(same->rank, one.rank);
      }
    }
    if (other.first_failure &&
        (!first_failure || other.first_failure->what < first_failure->what)) {
      first_failure = std::move(other.first_failure);
    }
    if (!cancelled) cancelled = std::move(other.cancelled);
  }
};
[[nodiscard]] inline bool is_sound(const contribution& one, int ranks) noexcept {
  return std::all_of(one.unknown.begin(), one.unknown.end(),
                     [&](const key& each) { return is_sound(each, ranks); });
}

enum class verdict_kind : std::uint8_t { more, not_spawned, cycle, again, fence, close };

/// DOWN.
struct verdict {
  verdict_kind kind = verdict_kind::more;
  std::vector<key> unknown;  ///< not_spawned
  window_report report;      ///< again, fence, close
};
[[nodiscard]] inline bool is_sound(const verdict& one, int ranks) noexcept {
  return one.kind <= verdict_kind::close &&
         std::all_of(one.unknown.begin(), one.unknown.end(),
                     [&](const key& each) { return is_sound(each, ranks); });
}

/// What the root remembers of a window from wave to wave.
class wave_root {
 public:
  /// `all` is the contribution of all ranks.
  [[nodiscard]] verdict decide(contribution all) {
    for (report_item& one : all.reports) {
      const auto which = std::tuple(one.what, one.rank, one.refused);
      reports_[which] = std::move(one);
    }
    for (named_family& one : all.named) note(std::move(one));
    const std::pair sums(all.sent, all.received);
    const bool quiet = all.sent == all.received && last_ == sums;  // [graph T4]
    last_ = sums;
    verdict one;
    if (!quiet) return one;
    if (!all.unknown.empty()) {  // [graph T5]
      one.kind = verdict_kind::not_spawned;
      one.unknown = std::move(all.unknown);
    } else if (all.waiting != 0) {  // [graph T5]
      one.kind = verdict_kind::cycle;
    } else {
      // A fault of this library, or of what another rank has sent: not to be passed over.
      if ((all.kinds & waits::await) != 0) out_of_place("an await waits that nothing can end");
      one.kind = (all.kinds & waits::close) != 0   ? verdict_kind::close  // [graph T8]
                 : (all.kinds & waits::fence) != 0 ? verdict_kind::fence
                                                   : verdict_kind::again;
      one.report = report(all);
    }
    return one;
  }
  void clear_window() {
    reports_.clear();
    named_.clear();
  }

 private:
  friend struct inspector;
  void note(named_family one) {
    std::vector<named_family>& known = named_[one.facts.name];
    const auto same = std::find_if(known.begin(), known.end(), [&](const named_family& each) {
      return each.facts == one.facts;
    });
    if (same == known.end()) {
      known.push_back(std::move(one));
    } else {
      same->rank = std::min(same->rank, one.rank);
    }
  }
  [[nodiscard]] window_report report(contribution& all) const {
    window_report one;
    one.failed = all.failed;
    if (all.first_failure) one.first_failure = std::move(all.first_failure->why);
    one.cancelled = std::move(all.cancelled);
    for (const auto& [which, item] : reports_) {
      (item.refused ? one.refused : one.divergences).push_back({item.task, item.text});
    }
    for (const auto& [name, known] : named_) {
      if (known.size() > 1) one.divergences.push_back(difference(known));  // [graph K3]
    }
    const auto before = [](const divergence& a, const divergence& b) {
      return std::tie(a.task, a.text) < std::tie(b.task, b.text);
    };
    std::sort(one.divergences.begin(), one.divergences.end(), before);
    std::sort(one.refused.begin(), one.refused.end(), before);
    return one;
  }
  // Of a family: both values, and a rank for each.
  [[nodiscard]] static divergence difference(std::vector<named_family> known) {
    std::sort(known.begin(), known.end(), [](const named_family& a, const named_family& b) {
      return std::tie(a.rank, a.facts.placement, a.facts.function, a.facts.result) <
             std::tie(b.rank, b.facts.placement, b.facts.function, b.facts.result);
    });
    const family_facts& a = known[0].facts;
    const family_facts& b = known[1].facts;
    const bool options = a.name.empty();
    const auto [field, left, right] =
        a.placement != b.placement ? std::tuple("placement", a.placement, b.placement)
        : a.function != b.function ? std::tuple("function", a.function, b.function)
                                   : std::tuple("type of the value", a.result, b.result);
    const auto shown = [](const std::string& text) { return text.empty() ? "none" : text; };
    divergence one;
    one.task = options ? "options of the scope" : a.name;
    one.text = options ? "the options of the scope differ: rank "
                       : "the ranks do not agree about the " + std::string(field) +
                             " of the family " + a.name + ": rank ";
    one.text += std::to_string(known[0].rank) + " says " + shown(left) + ", rank " +
                std::to_string(known[1].rank) + " says " + shown(right);
    return one;
  }

  std::optional<std::pair<std::uint64_t, std::uint64_t>> last_;
  std::map<std::tuple<key, std::uint32_t, bool>, report_item> reports_;
  std::map<std::string, std::vector<named_family>> named_;
};

/// Where a rank stands in the tree of the wave (graph T3).
struct wave_place {
  int parent = -1;
  std::array<int, 2> children{-1, -1};
  int child_count = 0;
  wave_place(int rank, int ranks) noexcept : parent(rank == 0 ? -1 : (rank - 1) / 2) {
    for (const int child : {2 * rank + 1, 2 * rank + 2}) {
      if (child < ranks) children[static_cast<std::size_t>(child_count++)] = child;
    }
  }
  /// -1 if it is none.
  [[nodiscard]] int child(int rank) const noexcept {
    for (int i = 0; i < child_count; ++i) {
      if (children[static_cast<std::size_t>(i)] == rank) return i;
    }
    return -1;
  }
};

}  // namespace cohort::graph::machine
