// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// Bodies of `graph/recording.hpp`.

#include <cohort/core/json_text.hpp>
#include <cohort/graph/recording.hpp>

#include <algorithm>
#include <exception>
#include <limits>

namespace cohort::graph {

// Places in names and uses are 32 bits, and both lie within the bound.
COHORT_INLINE recording::recording(int rank, const recording_options& options)
    : rank_(rank),
      limit_(std::min<std::size_t>(options.bytes, std::numeric_limits<std::uint32_t>::max())) {}

COHORT_INLINE recorded_task recording::operator[](std::size_t at) const noexcept {
  const entry& one = entries_[at];
  return {.name = {names_.data() + one.name, one.name_size},
          .key = one.key,
          .kind = one.kind,
          .window = one.window,
          .thread = one.thread,
          .begin = detail::time_of(one.begin),
          .end = detail::time_of(one.end),
          .uses = std::span(uses_).subspan(one.use, one.use_count)};
}

// Once something is left out all that follows is, so that what is here is a prefix of the run.
COHORT_INLINE void recording::append(const recorded_task& one) noexcept {
  const std::string_view name = trace::utf8_prefix(one.name, name_limit);
  const std::size_t uses = std::min(one.uses.size(), uses_limit);
  const std::size_t cost = sizeof(entry) + name.size() + uses * sizeof(recorded_use);
  if (left_out_ != 0 || cost > limit_ - bytes_) {
    ++left_out_;
    return;
  }
  const std::size_t names_before = names_.size();
  const std::size_t uses_before = uses_.size();
  try {
    store(one, name);
    bytes_ += cost;
    uses_left_out_ += one.uses.size() - uses;
  } catch (const std::exception&) {  // no memory
    names_.resize(names_before);
    uses_.resize(uses_before);
    ++left_out_;
  }
}

COHORT_INLINE void recording::store(const recorded_task& one, std::string_view name) {
  const auto uses = one.uses.first(std::min(one.uses.size(), uses_limit));
  const entry made{
      .key = one.key,
      .begin = detail::nanoseconds_of(one.begin),
      .end = std::max(detail::nanoseconds_of(one.end), detail::nanoseconds_of(one.begin)),
      .name = static_cast<std::uint32_t>(names_.size()),
      .use = static_cast<std::uint32_t>(uses_.size()),
      .use_count = static_cast<std::uint32_t>(uses.size()),
      .window = one.window,
      .thread = one.thread,
      .name_size = static_cast<std::uint16_t>(name.size()),
      .kind = one.kind};
  names_.insert(names_.end(), name.begin(), name.end());
  uses_.insert(uses_.end(), uses.begin(), uses.end());
  entries_.push_back(made);
}

COHORT_INLINE void recording::write_key(wire::writer& out, const machine::key& key) {
  out(key.low, key.high);
  out.signed_varint(key.home);
}

COHORT_INLINE machine::key recording::read_key(wire::reader& in) {
  machine::key key;
  in(key.low, key.high);
  const std::int64_t home = in.signed_varint();
  if (home < -1 || home > std::numeric_limits<std::int32_t>::max()) {
    in.fail(wire_errc::bad_value);
    return {};
  }
  key.home = static_cast<std::int32_t>(home);
  return key;
}

COHORT_INLINE void recording::write(wire::writer& out) const {
  out.signed_varint(rank_);
  out.varint(limit_);
  out.varint(left_out_);
  out.varint(uses_left_out_);
  out.varint(entries_.size());
  std::int64_t before = 0;
  for (const entry& one : entries_) {
    out.text({names_.data() + one.name, one.name_size});
    write_key(out, one.key);
    out.put(one.kind);
    out.varint(one.window);
    out.varint(one.thread);
    out.signed_varint(one.begin - before);
    out.varint(static_cast<std::uint64_t>(one.end - one.begin));
    out.varint(one.use_count);
    for (const recorded_use& use : std::span(uses_).subspan(one.use, one.use_count)) {
      write_key(out, use.task);
      out.put(use.use);
    }
    before = one.begin;
  }
}

// Times are of another rank's clock and may be any; the arithmetic on them must not overflow.
COHORT_INLINE void recording::read(wire::reader& in) {
  constexpr std::uint64_t longest = std::numeric_limits<std::int64_t>::max() / 4;
  constexpr std::size_t least_task = 21;  // bytes
  constexpr std::size_t least_use = 14;
  *this = {};
  const std::int64_t rank = in.signed_varint();
  if (rank < -1 || rank > std::numeric_limits<int>::max()) in.fail(wire_errc::bad_value);
  const std::uint64_t limit = in.varint_up_to(std::numeric_limits<std::uint32_t>::max());
  left_out_ = in.varint();
  uses_left_out_ = in.varint();
  const std::size_t count = in.count(least_task);
  std::int64_t before = 0;
  std::vector<recorded_use> uses;
  for (std::size_t i = 0; i < count && in.ok(); ++i) {
    recorded_task one;
    one.name = in.text();
    one.key = read_key(in);
    const auto kind = in.varint_up_to(static_cast<std::uint64_t>(recorded_kind::source));
    one.kind = static_cast<recorded_kind>(kind);
    one.window =
        static_cast<std::uint32_t>(in.varint_up_to(std::numeric_limits<std::uint32_t>::max()));
    one.thread =
        static_cast<std::uint32_t>(in.varint_up_to(std::numeric_limits<std::uint32_t>::max()));
    const auto later = static_cast<std::uint64_t>(in.signed_varint());
    const std::uint64_t begin = static_cast<std::uint64_t>(before) + later;
    const std::uint64_t took = in.varint_up_to(longest);
    if (begin > longest || one.name.size() > name_limit) in.fail(wire_errc::bad_value);
    uses.resize(in.count(least_use));
    if (uses.size() > uses_limit) in.fail(wire_errc::too_long);
    for (recorded_use& use : uses) {
      use.task = read_key(in);
      const auto how = in.varint_up_to(static_cast<std::uint64_t>(machine::use_kind::after));
      use.use = static_cast<machine::use_kind>(how);
    }
    if (!in.ok()) break;
    before = static_cast<std::int64_t>(begin);
    one.begin = detail::time_of(before);
    one.end = detail::time_of(before + static_cast<std::int64_t>(took));
    one.uses = uses;
    store(one, one.name);
    bytes_ += sizeof(entry) + one.name.size() + uses.size() * sizeof(recorded_use);
  }
  if (!in.ok()) {
    *this = {};
    return;
  }
  rank_ = static_cast<int>(rank);
  limit_ = static_cast<std::size_t>(limit);
}

}  // namespace cohort::graph
