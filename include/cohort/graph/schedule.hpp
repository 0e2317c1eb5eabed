// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// What a rank has run when, as a file in the format of the timeline, which Perfetto opens and
/// scripts/timeline_merge reads.

#include <cohort/core/json_text.hpp>
#include <cohort/core/trace_file.hpp>
#include <cohort/graph/detail/text_output.hpp>
#include <cohort/graph/recording.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace cohort::graph {

/// Of which job and scope the recording is.
struct schedule_facts {
  int ranks = 1;          ///< of the job
  std::string scope{};    ///< its name
  trace::origin began{};  ///< not after what was recorded
};

/// The schedule of one rank. A task is a slice, with its key and those of the tasks that it depends
/// on among its arguments. The loop is a row, which becomes several where tasks await and overlap,
/// and so is each thread of a pool. Sources are moments.
template <class Any = void>
[[nodiscard]] std::string schedule_text(const recording& tasks, const schedule_facts& facts);

/// The same into the file of this rank, `trace::path_of_rank(path, ...)`. The error is the
/// operating system's.
template <class Any = void>
[[nodiscard]] std::error_code write_schedule(const std::string& path, const recording& tasks,
                                             const schedule_facts& facts);

// ---- implementation --------------------------------------------------------------------------

namespace detail {

template <class Any>
class schedule_writer {
 public:
  schedule_writer(const recording& tasks, const schedule_facts& facts, text_output& out)
      : tasks_(tasks), facts_(facts), line_(largest_line(tasks)), out_(out) {}

  void write() {
    // Names are bounded, as everything that comes into the fixed buffer.
    const std::string_view scope = trace::utf8_prefix(facts_.scope, recording::name_limit);
    trace::origin began = facts_.began;
    began.host.resize(std::min(began.host.size(), recording::name_limit));
    began.boot.resize(std::min(began.boot.size(), recording::name_limit));
    trace::write_head(line_, tasks_.rank(), facts_.ranks, began, "graph",
                      scope.empty() ? "-" : scope);
    end_line();
    place();
    std::int64_t last = 0;
    for (const slice& one : slices_) {
      task(one);
      last = std::max(last, one.end);
    }
    if (tasks_.left_out() + tasks_.uses_left_out() > 0) losses(last);
    out_.put(std::string_view("\n]}\n"));
  }

 private:
  // The coordinator's rows of a rank are below 900 (coordinator/timeline.hpp).
  static constexpr std::uint64_t events_row = 1;
  static constexpr std::uint64_t sources_row = 2;
  static constexpr std::uint64_t task_rows = 900;
  static constexpr std::size_t most_rows = 100;
  static constexpr std::size_t key_size = 24 + 1 + 11 + 1;  // with a blank

  struct slice {
    std::size_t at = 0;  // in the recording
    std::int64_t begin = 0;
    std::int64_t end = 0;
    std::pair<std::uint32_t, std::size_t> row;  // thread, and which of its rows
  };

  static std::size_t largest_line(const recording& tasks) {
    std::size_t uses = 0;
    for (std::size_t at = 0; at < tasks.size(); ++at) uses = std::max(uses, tasks[at].uses.size());
    return 6 * 4 * recording::name_limit + 2048 + (uses + 1) * key_size;
  }

  [[nodiscard]] std::int64_t since(steady_clock::time_point when) const noexcept {
    return std::max<std::int64_t>(nanoseconds_of(when) - facts_.began.steady_ns, 0);
  }

  /// Slices in the order of time, each in a row, and the names of the rows.
  void place() {
    bool sources = false;
    for (std::size_t at = 0; at < tasks_.size(); ++at) {
      const recorded_task one = tasks_[at];
      slices_.push_back({at, since(one.begin), since(one.end), {one.thread, 0}});
      sources = sources || one.kind == recorded_kind::source;
    }
    std::sort(slices_.begin(), slices_.end(), [](const slice& a, const slice& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.at < b.at;
    });
    std::map<std::uint32_t, trace::viewer_rows> threads;
    for (slice& one : slices_) {
      if (tasks_[one.at].kind == recorded_kind::source) continue;
      one.row.second = threads[one.row.first].place(one.begin, one.end);
      rows_.emplace(one.row, 0);
    }
    if (sources) name_row(sources_row, "sources", 0);
    std::size_t next = 0;
    for (auto& [row, number] : rows_) {
      number = task_rows + std::min(next, most_rows - 1);
      if (next++ >= most_rows) continue;  // shares the last one
      const std::string thread = "thread " + std::to_string(row.first);
      name_row(number, row.first == 0 ? std::string_view("tasks") : thread, row.second);
    }
  }

  void name_row(std::uint64_t row, std::string_view name, std::size_t nth) {
    trace::write_row_name(line_, tasks_.rank(), trace::first_row(tasks_.rank()) + row, name, nth);
    end_line();
  }

  void task(const slice& one) {
    const recorded_task what = tasks_[one.at];
    const bool source = what.kind == recorded_kind::source;
    line_.raw(",\n{\"name\":\"").escaped(what.name);
    if (source) {
      line_.raw(R"(","cat":"source","ph":"i","s":"t","ts":)").microseconds(one.begin);
    } else {
      line_.raw(R"(","cat":"task","ph":"X","ts":)").microseconds(one.begin);
      line_.raw(R"(,"dur":)").microseconds(one.end - one.begin);
    }
    position(source ? sources_row : rows_.at(one.row));
    line_.raw(R"("window":)").number(std::uint64_t{what.window}).raw(R"(,"key":")");
    key(what.key);
    line_.raw("\"");
    if (what.kind == recorded_kind::failed) line_.raw(R"(,"failed":1)");
    uses(what, machine::use_kind::plain, R"(,"reads":")");
    uses(what, machine::use_kind::take, R"(,"takes":")");
    uses(what, machine::use_kind::after, R"(,"after":")");
    line_.raw("}}");
    end_line();
  }

  void position(std::uint64_t row) {
    line_.raw(R"(,"pid":)").number(std::int64_t{std::max(tasks_.rank(), 0)});
    line_.raw(R"(,"tid":)").number(trace::first_row(tasks_.rank()) + row).raw(R"(,"args":{)");
  }

  void uses(const recorded_task& what, machine::use_kind kind, std::string_view member) {
    bool any = false;
    for (const recorded_use& use : what.uses) {
      if (use.use != kind) continue;
      line_.raw(std::exchange(any, true) ? std::string_view(" ") : member);
      key(use.task);
    }
    if (any) line_.raw("\"");
  }

  /// Its 96 bits, and where its home is.
  void key(const machine::key& one) {
    hexadecimal(one.high, 8);
    hexadecimal(one.low, 16);
    line_.raw("@").number(std::int64_t{one.home});
  }

  void hexadecimal(std::uint64_t value, std::size_t digits) {
    std::array<char, 16> text{};
    for (std::size_t i = digits; i-- > 0; value >>= 4U) text[i] = "0123456789abcdef"[value & 15U];
    line_.raw({text.data(), digits});
  }

  void losses(std::int64_t when) {
    name_row(events_row, "events", 0);
    line_.raw(",\n{\"name\":\"tasks left out\",\"cat\":\"event\",\"ph\":\"i\",\"s\":\"t\",\"ts\":");
    line_.microseconds(when);
    position(events_row);
    line_.raw(R"("lost":)").number(tasks_.left_out());
    line_.raw(R"(,"dependencies":)").number(tasks_.uses_left_out()).raw("}}");
    end_line();
  }

  void end_line() {
    out_.put(line_.view());
    line_.clear();
  }

  const recording& tasks_;
  const schedule_facts& facts_;
  trace::json_text line_;
  text_output& out_;
  std::vector<slice> slices_;
  std::map<std::pair<std::uint32_t, std::size_t>, std::uint64_t> rows_;  // to their numbers
};

}  // namespace detail

template <class Any>
std::string schedule_text(const recording& tasks, const schedule_facts& facts) {
  std::string text;
  detail::text_output out(text);
  detail::schedule_writer<Any>(tasks, facts, out).write();
  return text;
}

template <class Any>
std::error_code write_schedule(const std::string& path, const recording& tasks,
                               const schedule_facts& facts) {
  std::string buffer;
  detail::text_output out(trace::path_of_rank(path, tasks.rank(), facts.ranks), buffer);
  detail::schedule_writer<Any>(tasks, facts, out).write();
  return out.finish();
}

}  // namespace cohort::graph
