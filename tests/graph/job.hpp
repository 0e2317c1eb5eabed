// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What a job of the task graph's checker consists of: specs, programs, and the results that
/// tasks compute. Both the world and the oracle read it.

#include "support/checking.hpp"

#include <cohort/graph/machine/names.hpp>
#include <cohort/graph/machine/node.hpp>

#include <algorithm>
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::graph::machine {

inline std::ostream& operator<<(std::ostream& out, const key& k) {
  return out << std::hex << (k.low >> 44U) << std::dec << '@' << k.home;
}

}  // namespace cohort::graph::machine

namespace graph_test {

using namespace cohort::graph::machine;
using checking::check;
using checking::rng;
using checking::violation;

class hasher {
 public:
  hasher& operator()(std::uint64_t value) {
    state_ = (state_ ^ value) * 0x9e3779b97f4a7c15U;
    state_ ^= state_ >> 29U;
    return *this;
  }
  hasher& operator()(const key& k) {
    return (*this)(k.low)(k.high)(static_cast<std::uint64_t>(k.home));
  }
  [[nodiscard]] std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 0x243f6a8885a308d3U;
};

/// A task as programs name it. Its home is `base` plus the family's placement.
struct label {
  int family = 0;
  int index = 0;
  int base = 0;
  friend auto operator<=>(const label&, const label&) = default;
};
inline std::ostream& operator<<(std::ostream& out, const label& name) {
  return out << 'f' << name.family << '(' << name.index << ")@" << name.base;
}

/// The key of a name: what it is called, and where its home is (graph K1).
inline key key_of(int scope, const label& name, int home) {
  hasher hash;
  hash(static_cast<std::uint64_t>(scope))(static_cast<std::uint64_t>(name.family));
  hash(static_cast<std::uint64_t>(name.index));
  const std::uint64_t low = hash.value();
  return {low, static_cast<std::uint32_t>(hash(7).value()), home};
}

/// Scopes with names of their own, or one after the other with the same name (graph O1).
inline scope_id id_of(int scope, bool reopens) {
  const auto number = static_cast<std::uint64_t>(scope);
  return reopens ? scope_id{17, number} : scope_id{17 + number, 0};
}
inline int scope_of(const scope_id& id) { return static_cast<int>(id.name - 17 + id.opening); }

struct use {
  label task;
  use_kind how = use_kind::plain;
  friend auto operator<=>(const use&, const use&) = default;
};

/// A spawn or a put as the user writes it.
struct spec {
  label name;
  unsigned function = 0;
  std::vector<use> deps;
  std::optional<unsigned> put;     // a source, with this value
  bool fails = false;              // the body throws
  std::vector<int> children = {};  // specs that it spawns
  unsigned size = 1;               // of its value
  bool local = false;              // an argument has no wire format
  bool homely = false;             // the value has no wire format
  friend bool operator==(const spec&, const spec&) = default;
};

/// What the arguments of a task say, which is all of a spec that has no field of its own in a
/// definition.
struct body {
  label name;
  bool fails = false;
  std::vector<int> children;
  unsigned size = 1;
  bool homely = false;
  friend bool operator==(const body&, const body&) = default;
};

struct operation {
  enum class kind {
    spawn,
    fetch,
    timed,       // a fetch with a deadline
    grab,        // a fetch that takes
    timed_grab,  // one with a deadline
    cancel,
    fork,  // another producer starts with the program `number`
    end,   // of a producer that has been forked
    again,
    fence,
    close,
    misuse,  // a spawn that is refused, the kind of `wrong`
  } what = kind::spawn;
  int number = -1;  // of a spec, or of a program
  label name;       // what is awaited
  int window = 0;   // in which the name was made
};

inline bool is_await(operation::kind what) {
  return what >= operation::kind::fetch && what <= operation::kind::timed_grab;
}
inline bool takes(operation::kind what) {
  return what == operation::kind::grab || what == operation::kind::timed_grab;
}
inline bool has_deadline(operation::kind what) {
  return what == operation::kind::timed || what == operation::kind::timed_grab;
}
inline bool ends_window(operation::kind what) {
  return what >= operation::kind::again && what <= operation::kind::close;
}

inline std::ostream& operator<<(std::ostream& out, const operation& one) {
  static constexpr const char* names[] = {"spawn",      "fetch",  "timed", "grab",
                                          "timed_grab", "cancel", "fork",  "end",
                                          "again",      "fence",  "close", "misuse"};
  out << names[static_cast<int>(one.what)];
  if (one.number >= 0) out << " #" << one.number;
  if (is_await(one.what)) out << ' ' << one.name << " of window " << one.window;
  return out;
}

using program = std::vector<operation>;

/// What the ranks say of families, each its own.
struct rank_facts {
  std::map<int, int> places;      // family -> how far from its base
  std::set<int> other_functions;  // families of which it names another function
  bool other_options = false;
};

/// The programs of one scope: of each rank the first producer's, then those that are forked.
struct scope_job {
  std::vector<std::vector<program>> ranks;
  std::vector<spec> specs;
  std::vector<body> bodies;  // of the specs, each once
  [[nodiscard]] int body_of(const spec& one) const {
    const body wanted{one.name, one.fails, one.children, one.size, one.homely};
    return static_cast<int>(std::find(bodies.begin(), bodies.end(), wanted) - bodies.begin());
  }
  int add(const spec& one) {
    const auto found = std::find(specs.begin(), specs.end(), one);
    if (found != specs.end()) return static_cast<int>(found - specs.begin());
    specs.push_back(one);
    if (body_of(one) == static_cast<int>(bodies.size())) {
      bodies.push_back({one.name, one.fails, one.children, one.size, one.homely});
    }
    return static_cast<int>(specs.size()) - 1;
  }
};

/// How a job is disturbed, and so what may be said of its results.
struct job {
  int ranks = 1;
  std::vector<scope_job> scopes;
  std::vector<rank_facts> facts;  // per rank
  unsigned eager = 1;
  unsigned credit = 2;
  int tags = 4;
  bool strict = true;   // every result is that of a serial execution
  bool misuse = false;  // readers may come after takers (graph M5)
  bool cycles = true;
  bool children = false;
  bool uniform = false;  // all ranks spawn the same: messages are counted (graph P7)
  bool timed = false;
  bool fail_fast = false;
  bool patient = false;  // nodes are (graph T3)
  bool asks = false;     // for stall reports
  bool reopens = false;  // a rank opens a scope when the one before has closed there
  int deaths = 0;
  [[nodiscard]] bool displaced() const {
    return std::any_of(facts.begin(), facts.end(),
                       [](const rank_facts& one) { return !one.places.empty(); });
  }
};

/// A value has so many bytes for each unit of its size.
inline constexpr std::size_t unit = 32;

/// What becomes of an await, or is told of a task.
enum class fate : std::uint8_t {
  value,
  failed,
  not_spawned,
  cycle,
  stale,
  taken,
  cancelled,
  lost,
  diverged,
  deadline,
  refused,
  fence,
};
inline std::string_view name_of(fate what) {
  static constexpr std::string_view names[] = {
      "await: value",    "await: failed",   "await: not_spawned", "await: cycle",
      "await: stale",    "await: taken",    "await: cancelled",   "await: lost",
      "await: diverged", "await: deadline", "await: refused",     "fence"};
  return names[static_cast<std::size_t>(what)];
}
inline std::ostream& operator<<(std::ostream& out, fate what) { return out << name_of(what); }

struct outcome {
  fate what = fate::value;
  std::uint64_t value = 0;
  unsigned size = 0;
  key root;
  friend bool operator==(const outcome&, const outcome&) = default;
};
inline std::ostream& operator<<(std::ostream& out, const outcome& one) {
  if (one.what == fate::value) return out << "value " << one.value << " of size " << one.size;
  return out << one.what << ", root " << one.root;
}

/// One entry of what a producer has seen: operation, window, what became of it.
struct log_entry {
  std::size_t at = 0;
  int window = 0;
  outcome what;
};

/// The window is an input so that a value of another window is noticed.
inline std::uint64_t result_of(int window, const key& k, unsigned function,
                               const std::optional<unsigned>& put,
                               const std::vector<std::uint64_t>& inputs) {
  hasher hash;
  hash(static_cast<std::uint64_t>(window))(k)(function)(put ? *put + 1 : 0);
  for (const std::uint64_t one : inputs) hash(one);
  return hash.value();
}

/// What a rank derives from its own program alone.
class front {
 public:
  front() = default;
  front(int scope, int ranks, const rank_facts& facts)
      : scope_(scope), ranks_(ranks), facts_(&facts) {}

  [[nodiscard]] int placement(int family) const {
    const auto found = facts_->places.find(family);
    return found == facts_->places.end() ? 0 : found->second;
  }
  [[nodiscard]] key key_of(const label& name) const {
    return graph_test::key_of(scope_, name, (name.base + placement(name.family)) % ranks_);
  }
  [[nodiscard]] bool odd(int family) const { return facts_->other_functions.contains(family); }

 private:
  int scope_ = 0;
  int ranks_ = 1;
  const rank_facts* facts_ = nullptr;
};

/// What H(D) covers, as far as it matters here.
struct definition {
  unsigned function = 0;
  std::vector<std::pair<key, use_kind>> deps;
  std::optional<unsigned> put;
  int body = -1;
  friend bool operator==(const definition&, const definition&) = default;
};

inline definition define(const front& from, const scope_job& scope, const spec& one) {
  definition result{one.function, {}, one.put, scope.body_of(one)};
  for (const use& dep : one.deps) result.deps.emplace_back(from.key_of(dep.task), dep.how);
  return result;
}

}  // namespace graph_test
