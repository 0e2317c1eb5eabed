// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// How the tensors of an elected operation are reduced, which of them travel together, and where
/// they lie then.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/comm/device_backend.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/pack_layout.hpp>
#include <cohort/nccl/types.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace cohort::nccl {

/// What NCCL cannot do is done while tensors are packed and unpacked, by kernels or by the host.
struct treatment {
  element as{ncclUint8};
  operator_value op;
  double scale_before = 1;
  double scale_after = 1;
  std::int64_t divide_after = 1;
  bool by_host = false;  ///< of elements that only the host knows

  [[nodiscard]] bool finishes() const noexcept { return scale_after != 1 || divide_after != 1; }
  friend bool operator==(const treatment&, const treatment&) = default;
};

namespace detail {

/// As an operand of a reduction, or nothing.
inline std::optional<element> reduced_element(const comm::tensor& of) {
  const auto what = static_cast<element_type>(of.kernels->element);
  const int type = type_of(what);
  if (type == no_type) return std::nullopt;
  const bool has_parts = what == element_type::complex64 || what == element_type::complex128;
  return element{static_cast<ncclDataType_t>(type), has_parts ? std::size_t{2} : std::size_t{1}};
}

[[nodiscard]] inline bool is_real(ncclDataType_t type) noexcept {
  return type == ncclFloat16 || type == ncclBfloat16 || type == ncclFloat32 || type == ncclFloat64;
}

/// A sum of contributions times `factor`.
inline operator_value scaled_sum(ncclDataType_t type, double factor) {
  operator_value made;
  made.is_scaled = true;
  const auto put = [&](auto value) { std::memcpy(made.factor.data(), &value, sizeof value); };
  if (type == ncclFloat16) {
    put(f16(static_cast<float>(factor)));
  } else if (type == ncclBfloat16) {
    put(bf16(static_cast<float>(factor)));
  } else if (type == ncclFloat32) {
    put(static_cast<float>(factor));
  } else {
    put(factor);
  }
  return made;
}

/// An average is summed. What NCCL only moves gets any.
[[nodiscard]] inline ncclRedOp_t plain_operation(reduction_code reduction) noexcept {
  return is_sum(reduction) ? ncclSum : native_operation(reduction);
}

/// Depends on what is equal on all ranks only.
inline treatment treatment_of(const comm::tensor& of, reduction_code reduction, int ranks) {
  treatment how;
  how.as = *reduced_element(of);
  if (of.rounded) {
    how.op.op = plain_operation(reduction);
    how.scale_before = of.prescale;
    how.scale_after = of.postscale;
    if (reduction == reduction_code::average) how.divide_after = of.divisor;
    return how;
  }
  const bool by_all = of.all_bring && of.divisor == ranks;
  // NCCL multiplies in the type of the elements: in 16 bits a factor may be 0 or infinite.
  const double least = how.as.type == ncclFloat16 ? 6.2e-5 : 1.2e-38;
  const double most = how.as.type == ncclFloat16 ? 6.5e4 : 3.3e38;
  const bool is_small_type = of.size() / how.as.width < sizeof(double);
  const auto fits = [&](double by) {
    return !is_small_type || by == 0 || (std::abs(by) >= least && std::abs(by) <= most);
  };
  // A factor behind the sum comes before it only where no partial sum grows: it could overflow.
  const auto folds = [&](double by) { return fits(by) && std::abs(by) <= std::abs(of.prescale); };
  const auto divisor = static_cast<double>(of.divisor);
  const double factor = of.prescale * of.postscale;
  const auto scale_apart = [&] {
    if (is_real(how.as.type) && of.prescale != 1 && fits(of.prescale)) {
      how.op = scaled_sum(how.as.type, of.prescale);
    } else {
      how.scale_before = of.prescale;
    }
    how.scale_after = of.postscale;
  };
  switch (reduction) {
    case reduction_code::sum:
      if (!folds(factor)) {
        scale_apart();
      } else if (factor != 1) {
        how.op = scaled_sum(how.as.type, factor);
      }
      break;
    case reduction_code::average:
      if (by_all && factor == 1 && folds(factor / divisor)) {
        how.op.op = ncclAvg;
      } else if (is_real(how.as.type) && folds(factor / divisor)) {
        how.op = scaled_sum(how.as.type, factor / divisor);
      } else {
        scale_apart();
        how.divide_after = of.divisor;
      }
      break;
    default:
      how.op.op = plain_operation(reduction);
      break;
  }
  if (!is_sum(reduction)) {
    how.scale_before = of.prescale;
    how.scale_after = of.postscale;
  }
  return how;
}

/// Why NCCL cannot reduce that, by what is equal on all ranks; null: it can.
[[nodiscard]] inline const char* not_of_nccl(const comm::device_call& what) noexcept {
  if (what.reduction == reduction_code::no_reduction || !devices_have(what.reduction)) {
    return "NCCL has no such reduction";
  }
  for (const comm::tensor& one : what.tensors) {
    const auto as = reduced_element(one);
    if (!as) return "NCCL reduces no elements of such a type";
    if (as->width != 1 && !is_sum(what.reduction)) {
      return "NCCL has sum and average for complex numbers only";
    }
  }
  return nullptr;
}

/// The host applies all factors, and divides.
inline treatment on_the_host(const comm::tensor& of, reduction_code reduction) noexcept {
  treatment how;
  how.by_host = true;
  how.scale_before = of.prescale;
  how.scale_after = of.postscale;
  if (reduction == reduction_code::average) how.divide_after = of.divisor;
  return how;
}

}  // namespace detail

/// The runs of one operation; decided by what is equal on all ranks only.
class elected_runs {
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
  [[nodiscard]] const std::vector<run>& all() const noexcept { return runs_; }
  /// Of the buffer.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// visit(run, tensor, where it lies in the buffer)
  template <class Visit>
  void for_each_packed(std::span<const comm::tensor> tensors, std::byte* buffer, Visit visit) const;

 private:
  [[nodiscard]] treatment treatment_of(const comm::tensor& of) const;
  void lay_out_alike(std::size_t first, std::size_t count, const treatment& how);
  [[nodiscard]] std::optional<range> range_of(std::size_t first, std::size_t count,
                                              const treatment& how) const;

  const comm::device_call* what_ = nullptr;  // while it is laid out
  way goes_;
  std::vector<run> runs_;
  std::size_t bytes_ = 0;
};

inline void elected_runs::lay_out(const comm::device_call& what, const way& goes) {
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

inline treatment elected_runs::treatment_of(const comm::tensor& of) const {
  if (goes_.by_host) return detail::on_the_host(of, what_->reduction);
  if (what_->kind != op_kind::all_reduce) return {};
  return detail::treatment_of(of, what_->reduction, goes_.whole ? goes_.ranks : 0);
}

/// Tensors that one call could reduce: all of them in an arena, or small ones packed.
inline void elected_runs::lay_out_alike(std::size_t first, std::size_t count,
                                        const treatment& how) {
  if (goes_.whole) {
    if (const auto all = range_of(first, count, how)) {
      runs_.push_back({first, count, 0, 0, how, false, all});
      return;
    }
  }
  const auto item_of = [&](std::uint32_t i) {
    const std::size_t size = what_->tensors[first + i].bytes();
    return packs::item{.bytes = size, .small = size < goes_.pack_below || !goes_.whole};
  };
  packs::lay_out(count, packs::spacing::wide, SIZE_MAX, item_of, [&](const packs::call& one) {
    run made{first + one.first, one.tensors, 0, packs::aligned(one.bytes), how, one.small, {}};
    if (goes_.whole) made.direct = range_of(made.first, made.tensors, how);
    runs_.push_back(std::move(made));
  });
}

/// Whether these tensors, which one call would reduce or broadcast, are one range of an arena: then
/// what of it. Where the tensors are not there on this rank alone, because it has given up the
/// operation, it throws.
inline std::optional<elected_runs::range> elected_runs::range_of(std::size_t first,
                                                                 std::size_t count,
                                                                 const treatment& how) const {
  std::vector<const comm::tensor*> parts;
  for (const comm::tensor& each : std::span(what_->tensors).subspan(first, count)) {
    if (each.bytes() == 0) continue;
    const std::size_t unit = std::max<std::size_t>(each.size(), 1);
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
    const std::uint64_t end = before.offset + parts[i - 1]->bytes();
    const std::size_t next = packs::begin_behind(end, parts[i]->bytes(), packs::spacing::wide);
    const bool beside = here.offset == end || (before.padded && here.offset == next);
    if (here.arena != before.arena || !beside) return std::nullopt;
  }
  for (const comm::tensor* const each : parts) {
    const bool reads = brings_data(what_->kind, goes_.rank == what_->root);
    if (each->out != nullptr && (!reads || each->in == each->out)) continue;
    throw cohort::error(errc::not_accepting, "this rank has given up tensors in a fusion arena");
  }
  const comm::tensor& last = *parts.back();
  return range{static_cast<std::byte*>(parts.front()->out),
               last.place.offset + last.bytes() - parts.front()->place.offset};
}

template <class Visit>
void elected_runs::for_each_packed(std::span<const comm::tensor> tensors, std::byte* buffer,
                                   Visit visit) const {
  for (const run& each : runs_) {
    if (!each.packed) continue;
    packs::for_each_place(
        each.first, each.tensors, packs::spacing::wide,
        [&](std::size_t i) { return tensors[i].bytes(); },
        [&](std::size_t i, std::size_t at) { visit(each, tensors[i], buffer + each.begin + at); });
  }
}

}  // namespace cohort::nccl

#endif
