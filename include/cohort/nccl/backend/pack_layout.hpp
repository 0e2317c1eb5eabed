// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Which tensors of an elected operation travel together, and where they lie then.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/core/error.hpp>
#include <cohort/nccl/backend/treatment.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace cohort::nccl {

/// Of one operation; decided by what is equal on all ranks only.
class pack_layout {
 public:
  /// Of an arena.
  struct range {
    std::byte* begin;
    std::size_t bytes;
  };
  /// Tensors that one call reduces, or broadcasts.
  struct run {
    std::size_t first;
    std::size_t tensors;
    std::size_t begin;  // in the buffer, if they are packed
    std::size_t bytes;
    treatment how;
    bool packed;
    std::optional<range> direct;  // where they lie side by side in an arena
  };
  /// How the operation goes.
  struct way {
    int rank = 0;
    int ranks = 1;
    bool whole = true;     ///< not in two parts, with MPI between
    bool by_host = false;  ///< NCCL reduces nothing of it
    std::size_t pack_below = 0;
  };

  /// Throws error(errc::not_accepting) where this rank has given up what the others have in an
  /// arena.
  void lay_out(const comm::device_call& what, const way& goes);
  [[nodiscard]] const std::vector<run>& runs() const noexcept { return runs_; }
  /// Of the buffer.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// visit(run, tensor, where it lies in the buffer)
  template <class Visit>
  void for_each_packed(std::span<const comm::device_tensor> tensors, std::byte* buffer,
                       Visit visit) const;

 private:
  [[nodiscard]] treatment treatment_of(const comm::device_tensor& of) const;
  void lay_out_alike(std::size_t first, std::size_t count, const treatment& how);
  [[nodiscard]] std::optional<range> range_of(std::size_t first, std::size_t count,
                                              const treatment& how) const;

  const comm::device_call* what_ = nullptr;  // while it is laid out
  way goes_;
  std::vector<run> runs_;
  std::size_t bytes_ = 0;
};

inline void pack_layout::lay_out(const comm::device_call& what, const way& goes) {
  what_ = &what;
  goes_ = goes;
  const auto& tensors = what.tensors;
  for (std::size_t i = 0; i < tensors.size();) {
    const treatment how = treatment_of(tensors[i]);
    std::size_t end = i + 1;
    while (end < tensors.size() && treatment_of(tensors[end]) == how) ++end;
    lay_out_alike(i, end - i, how);
    i = end;
  }
  for (run& each : runs_) {
    // What is captured takes no other memory than that of the pack.
    const bool changes = each.how.scale_before != 1 || tensors[each.first].rounded;
    const bool fills = !goes.whole || (changes && what.use == comm::device_use::capture);
    each.packed = !each.direct && (each.tensors > 1 || fills);
    if (!each.packed) continue;
    each.begin = bytes_;
    bytes_ += each.bytes;
  }
}

inline treatment pack_layout::treatment_of(const comm::device_tensor& of) const {
  if (goes_.by_host) return detail::on_the_host(of, what_->reduction);
  if (what_->kind != comm::collective::all_reduce) return {};
  return detail::treatment_of(of, what_->reduction, goes_.whole ? goes_.ranks : 0);
}

/// Tensors that one call could reduce: all of them in an arena, or small ones packed.
inline void pack_layout::lay_out_alike(std::size_t first, std::size_t count, const treatment& how) {
  if (goes_.whole) {
    if (const auto all = range_of(first, count, how)) {
      runs_.push_back({first, count, 0, 0, how, false, all});
      return;
    }
  }
  const std::size_t before = runs_.size();
  for (std::size_t i = first; i < first + count; ++i) {
    const std::size_t size = detail::bytes_of(what_->tensors[i]);
    const bool small = size < goes_.pack_below || !goes_.whole;
    if (small && runs_.size() > before && runs_.back().packed) {
      ++runs_.back().tensors;
      runs_.back().bytes += detail::aligned(size);
    } else {
      runs_.push_back({i, 1, 0, detail::aligned(size), how, small, {}});
    }
  }
  if (!goes_.whole) return;
  for (std::size_t i = before; i < runs_.size(); ++i) {
    runs_[i].direct = range_of(runs_[i].first, runs_[i].tensors, how);
  }
}

/// Whether these tensors, which one call would reduce or broadcast, are one range of an arena: then
/// what of it. Where the tensors are not there on this rank alone, because it has given up the
/// operation, it throws.
inline std::optional<pack_layout::range> pack_layout::range_of(std::size_t first, std::size_t count,
                                                               const treatment& how) const {
  std::vector<const comm::device_tensor*> parts;
  for (const comm::device_tensor& each : std::span(what_->tensors).subspan(first, count)) {
    if (detail::bytes_of(each) == 0) continue;
    const std::size_t unit = std::max<std::size_t>(each.size, 1);
    const bool fits = each.place.arena != 0 && each.place.offset % unit == 0 && each.all_bring &&
                      how.scale_before == 1;
    if (!fits) return std::nullopt;
    parts.push_back(&each);
  }
  if (parts.empty()) return std::nullopt;
  std::sort(parts.begin(), parts.end(),
            [](const auto* a, const auto* b) { return a->place.offset < b->place.offset; });
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const comm::arena_place& before = parts[i - 1]->place;
    const comm::arena_place& here = parts[i]->place;
    const std::uint64_t end = before.offset + detail::bytes_of(*parts[i - 1]);
    const bool beside =
        here.offset == end || (before.padded && here.offset == detail::aligned(end));
    if (here.arena != before.arena || !beside) return std::nullopt;
  }
  for (const comm::device_tensor* const each : parts) {
    const bool reads = what_->kind == comm::collective::all_reduce || goes_.rank == what_->root;
    if (each->out != nullptr && (!reads || each->in == each->out)) continue;
    throw cohort::error(errc::not_accepting, "this rank has given up tensors in a fusion arena");
  }
  const comm::device_tensor& last = *parts.back();
  return range{static_cast<std::byte*>(parts.front()->out),
               last.place.offset + detail::bytes_of(last) - parts.front()->place.offset};
}

template <class Visit>
void pack_layout::for_each_packed(std::span<const comm::device_tensor> tensors, std::byte* buffer,
                                  Visit visit) const {
  for (const run& each : runs_) {
    if (!each.packed) continue;
    std::byte* at = buffer + each.begin;
    for (const comm::device_tensor& one : tensors.subspan(each.first, each.tensors)) {
      visit(each, one, at);
      at += detail::aligned(detail::bytes_of(one));
    }
  }
}

}  // namespace cohort::nccl

#endif
