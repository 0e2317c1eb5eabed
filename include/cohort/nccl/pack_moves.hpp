// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `cohort::nccl::pack_moves`: what goes between tensors and what travels, and what happens to it
/// on the way.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/comm/device_backend.hpp>
#include <cohort/device/batch.hpp>
#include <cohort/nccl/host_steps.hpp>
#include <cohort/nccl/pack_kernels.hpp>
#include <cohort/nccl/treatment.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace cohort::nccl {

/// Collects moves, and queues all of them on a stream.
///
/// 1. With kernels: one launch for each kind of change, none among them, and each
///    pack_kernels::parts_of_a_launch tensors.
/// 2. Without, elements that stay what they are go in one batch of copies; for the others host code
///    does it in the order of the stream, tensor by tensor. The results are the same to the bit, so
///    it does not matter which ranks have kernels.
class pack_moves {
 public:
  void clear() noexcept { all_.clear(); }
  [[nodiscard]] bool empty() const noexcept { return all_.empty(); }
  /// Whether something is done to elements, beyond copying them and filling in zeros.
  [[nodiscard]] bool change() const noexcept {
    return std::any_of(all_.begin(), all_.end(), [](const move& one) {
      return one.changes() && !one.is_zero() && !one.by_host;
    });
  }

  /// What a tensor contributes, or neutral elements, to where it is reduced or sent.
  void bring(const comm::device_tensor& one, const treatment& how, void* to,
             comm::device_reduction reduction) {
    if (one.count == 0) return;
    all_.push_back(
        {one.in, to, one.count, &one, how.as, how.scale_before, 1, reduction, true, how.by_host});
  }
  /// `count` elements of a result to its tensor, if that is wanted.
  void take(const comm::device_tensor& one, const treatment& how, const void* from,
            std::size_t count) {
    if (one.out == nullptr || count == 0) return;
    if (from == one.out && !how.finishes()) return;
    // One step of the two: no number is rounded twice.
    const bool both = how.divide_after != 1 && how.scale_after != 1;
    const double factor =
        both ? how.scale_after / static_cast<double>(how.divide_after) : how.scale_after;
    all_.push_back({from, one.out, count, &one, how.as, factor, both ? 1 : how.divide_after,
                    comm::device_reduction::none, false, how.by_host});
  }

  struct means {
    const pack_kernels* kernels = nullptr;
    device::pinned_vector<std::byte>* staging = nullptr;
    captured_calls* graph = nullptr;
  };
  /// Queues them in any order, and forgets them. Throws std::system_error; some may be queued then.
  void run(const device::stream& on, const means& with);

 private:
  struct move {
    const void* from;
    void* to;
    std::size_t count;
    const comm::device_tensor* tensor;
    element as;  // of what travels
    double factor;
    std::int64_t divisor;
    comm::device_reduction reduction;
    bool in;
    bool by_host;

    [[nodiscard]] std::size_t bytes() const noexcept { return count * tensor->size; }
    [[nodiscard]] bool casts() const noexcept { return tensor->cast != nullptr; }
    [[nodiscard]] bool changes() const noexcept {
      return from == nullptr || casts() || factor != 1 || divisor != 1;
    }
    [[nodiscard]] bool is_zero() const noexcept {
      return from == nullptr && (reduction == comm::device_reduction::none ||
                                 reduction == comm::device_reduction::sum ||
                                 reduction == comm::device_reduction::average);
    }
  };
  struct group {
    pack_kernels::change how;
    std::vector<pack_kernels::part> parts;
  };
  [[nodiscard]] static pack_kernels::change change_of(const move& one);
  void add_part(const pack_kernels::change& how, const pack_kernels::part& one);
  static void on_host(host_steps& steps, const move& one);

  std::vector<move> all_;
  std::vector<device::batch_part> copies_;  // empty between, for their memory
  std::vector<group> groups_;
  std::size_t used_ = 0;  // of these
};

inline pack_kernels::change pack_moves::change_of(const move& one) {
  pack_kernels::change how{one.as.type, one.as.type, one.factor, one.divisor, 0};
  if (one.casts()) {
    const ncclDataType_t wide =
        one.tensor->cast->element == element_type::float64 ? ncclFloat64 : ncclFloat32;
    (one.in ? how.from : how.to) = wide;
  }
  if (one.from == nullptr && !one.is_zero()) {
    std::array<std::byte, 16> bits{};
    one.tensor->math->fill(bits.data(), 1, one.reduction);
    std::memcpy(&how.neutral, bits.data(), sizeof how.neutral);
  }
  return how;
}

inline void pack_moves::add_part(const pack_kernels::change& how, const pack_kernels::part& one) {
  std::size_t at = 0;
  while (at < used_ && !(groups_[at].how == how)) ++at;
  if (at == used_) {
    if (used_ == groups_.size()) groups_.emplace_back();
    groups_[used_++].how = how;
  }
  groups_[at].parts.push_back(one);
}

inline void pack_moves::on_host(host_steps& steps, const move& one) {
  const comm::device_tensor& tensor = *one.tensor;
  if (one.from == nullptr) {
    steps.apply({one.to, tensor.size, nullptr, 0, one.count},
                [fill = tensor.math->fill, of = one.reduction](void* to, const void*,
                                                               std::size_t n) { fill(to, n, of); });
  } else if (one.casts() && one.in) {
    steps.apply({one.to, tensor.size, one.from, tensor.cast->size, one.count},
                [pack = tensor.cast->pack, by = one.factor](
                    void* to, const void* from, std::size_t n) { pack(to, from, n, by); });
  } else if (one.casts()) {
    steps.apply(
        {one.to, tensor.cast->size, one.from, tensor.size, one.count},
        [unpack = tensor.cast->unpack, by = one.factor, divisor = one.divisor](
            void* to, const void* from, std::size_t n) { unpack(to, from, n, by, divisor); });
  } else {
    steps.apply({one.to, tensor.size, one.from, tensor.size, one.count},
                [math = tensor.math, by = one.factor, divisor = one.divisor](
                    void* to, const void* from, std::size_t n) {
                  if (divisor != 1) return math->divide(to, from, n, divisor);
                  math->scale(to, from, n, by);
                });
  }
}

inline void pack_moves::run(const device::stream& on, const means& with) {
  copies_.clear();
  for (group& each : groups_) each.parts.clear();
  used_ = 0;
  host_steps steps(on, *with.staging, with.graph);
  for (const move& one : all_) {
    if (with.kernels != nullptr && !one.by_host) {
      const std::size_t elements = one.bytes() / detail::packed_type(one.as.type).size;
      add_part(change_of(one), {one.from, one.to, elements});
    } else if (!one.changes()) {
      copies_.push_back({one.to, one.from, one.bytes()});
    } else if (one.is_zero()) {
      device::check(cudaMemsetAsync(one.to, 0, one.bytes(), on.get()), "cudaMemsetAsync",
                    on.device());
    } else {
      on_host(steps, one);
    }
  }
  device::copy_batch(on, copies_);
  for (std::size_t i = 0; i < used_; ++i) with.kernels->run(on, groups_[i].how, groups_[i].parts);
  clear();
}

}  // namespace cohort::nccl

#endif
