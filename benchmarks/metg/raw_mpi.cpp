// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

#include "competitors.hpp"

#include <map>
#include <stdexcept>
#include <vector>

namespace raw_mpi {
namespace {

using support::stamp;

/// Values that leave for, or come from, one rank in one message.
struct message {
  int peer = 0;
  int tag = 0;
  std::vector<long> points;   // of the step before
  std::vector<stamp> values;  // of these
};

/// What a rank does in each step of a phase; a pattern has `repeats()` of them.
struct phase {
  std::vector<message> in, out;
  std::vector<std::vector<long>> reads;           // of each own point
  std::vector<std::vector<const stamp*>> remote;  // where the values lie; null: an own point's
};

class program {
 public:
  program(MPI_Comm comm, const dependence_pattern& pattern, messages how)
      : comm_(comm), pattern_(pattern), how_(how) {
    int ranks = 0;
    MPI_Comm_rank(comm, &rank_);
    MPI_Comm_size(comm, &ranks);
    ranks_ = ranks;
    first_ = first_of_part(rank_, ranks_, pattern.width);
    count_ = first_of_part(rank_ + 1, ranks_, pattern.width) - first_;
    before_.resize(static_cast<std::size_t>(count_));
    now_ = before_;
    for (long i = 0; i < pattern.repeats(); ++i) phases_.push_back(plan(pattern.repeats() + i));
  }

  void run(long rounds) {
    for (long step = 0; step < pattern_.steps; ++step) {
      phase& what = phases_[static_cast<std::size_t>(step % pattern_.repeats())];
      if (step > 0) exchange(what);
      for (long i = 0; i < count_; ++i) run_point(what, step, i, rounds);
      std::swap(now_, before_);
    }
  }

 private:
  /// Which messages there are before a step.
  phase plan(long step) const {
    phase made;
    std::map<std::pair<long, long>, message> in, out;  // sorted alike on both sides
    std::vector<long> reads;
    for (long point = 0; point < pattern_.width; ++point) {
      pattern_.reads(step, point, reads);
      const int reader = part_of(point, ranks_, pattern_.width);
      for (const long one : reads) {
        const int owner = part_of(one, ranks_, pattern_.width);
        if (owner == reader) continue;
        const auto tag = how_ == messages::of_edges ? point * pattern_.width + one : 0;
        if (reader == rank_) add(in[{owner, tag}], owner, tag, one);
        if (owner == rank_) add(out[{reader, tag}], reader, tag, one);
      }
      if (reader == rank_) made.reads.push_back(reads);
    }
    for (auto& [key, one] : in) made.in.push_back(std::move(one));
    for (auto& [key, one] : out) made.out.push_back(std::move(one));
    place(made);
    return made;
  }

  static void add(message& to, int peer, long tag, long point) {
    to.peer = peer;
    to.tag = static_cast<int>(tag);
    for (const long one : to.points) {
      if (one == point) return;
    }
    to.points.push_back(point);
    to.values.resize(to.points.size());
  }

  /// Says of each input where it will lie.
  static void place(phase& made) {
    std::map<long, const stamp*> arrives;
    for (const message& one : made.in) {
      for (std::size_t i = 0; i < one.points.size(); ++i) arrives[one.points[i]] = &one.values[i];
    }
    for (const auto& reads : made.reads) {
      auto& where = made.remote.emplace_back();
      for (const long one : reads) {
        const auto found = arrives.find(one);
        where.push_back(found == arrives.end() ? nullptr : found->second);
      }
    }
  }

  void exchange(phase& what) {
    requests_.clear();
    for (message& one : what.in) {
      MPI_Irecv(one.values.data(), bytes_of(one), MPI_BYTE, one.peer, one.tag, comm_,
                &requests_.emplace_back());
    }
    for (message& one : what.out) {
      for (std::size_t i = 0; i < one.points.size(); ++i) {
        one.values[i] = before_[static_cast<std::size_t>(one.points[i] - first_)];
      }
      MPI_Isend(one.values.data(), bytes_of(one), MPI_BYTE, one.peer, one.tag, comm_,
                &requests_.emplace_back());
    }
    MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE);
  }

  static int bytes_of(const message& one) {
    return static_cast<int>(one.values.size() * sizeof(stamp));
  }

  void run_point(const phase& what, long step, long index, long rounds) {
    const auto at = static_cast<std::size_t>(index);
    const auto& reads = what.reads[at];
    for (std::size_t i = 0; step > 0 && i < reads.size(); ++i) {
      const stamp* const there = what.remote[at][i];
      const stamp& input =
          there != nullptr ? *there : before_[static_cast<std::size_t>(reads[i] - first_)];
      if (input.step != step - 1 || input.point != reads[i]) {
        throw std::runtime_error("raw MPI: a task has not read what it should");
      }
    }
    support::work(rounds);
    now_[at] = {step, first_ + index};
  }

  MPI_Comm comm_;
  dependence_pattern pattern_;
  messages how_;
  int rank_ = 0;
  long ranks_ = 1;
  long first_ = 0;
  long count_ = 0;
  std::vector<phase> phases_;
  std::vector<stamp> before_;
  std::vector<stamp> now_;
  std::vector<MPI_Request> requests_;
};

}  // namespace

void run(MPI_Comm comm, const dependence_pattern& pattern, long rounds, messages how) {
  program(comm, pattern, how).run(rounds);
}

}  // namespace raw_mpi
