// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Operations that are packed, or cut into pieces: all_reduce and broadcast on the host.

#include <cohort/coordinator/data/lane.hpp>
#include <cohort/coordinator/instance.hpp>
#include <cohort/coordinator/timeline.hpp>
#include <cohort/core/copy.hpp>
#include <cohort/core/pack_layout.hpp>
#include <cohort/core/tool_range.hpp>
#include <cohort/mpi/post.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

namespace cohort::coordination {

/// What an average over `ranks` divides by.
[[nodiscard]] inline std::int64_t divisor(const task& of, int ranks) noexcept {
  if (of.code != reduction_code::average) return 1;
  const bool all = (of.flags & protocol::signature_flag::divide_by_all) != 0;
  return all ? ranks : static_cast<std::int64_t>(std::max<std::uint64_t>(of.contributors, 1));
}

/// A tensor that may be of another type in the memory of callers; the same on all ranks, also
/// those that bring neutral elements.
[[nodiscard]] inline bool is_rounded(const tensor& what, const task& of) noexcept {
  if ((of.flags & protocol::signature_flag::half_on_wire) == 0) return false;
  const auto element = static_cast<element_type>(what.kernels->element);
  return element == element_type::float16 || element == element_type::bfloat16;
}

/// What the operation of a tensor says about it.
inline void take_factors(tensor& one, const task& of) noexcept {
  one.prescale = of.prescale;
  one.postscale = of.postscale;
  one.rounded = is_rounded(one, of);
}

/// Scales and converts from the memory of the caller.
inline void lay_values(void* out, const void* in, std::size_t n, const tensor& what) {
  if (what.wire != nullptr) {
    what.wire->pack(out, in, n, what.prescale);
  } else if (what.prescale != 1) {
    what.kernels->scale(out, in, n, what.prescale);
  } else {
    copy_bytes(out, in, n * what.size());
  }
}

/// And back into it.
inline void finish_values(void* out, const void* in, std::size_t n, const tensor& what) {
  if (what.wire != nullptr) {
    what.wire->unpack(out, in, n, what.postscale, what.divisor);
  } else if (what.divisor != 1 && what.postscale == 1) {
    what.kernels->divide(out, in, n, what.divisor);
  } else if (what.divisor != 1 || what.postscale != 1) {
    what.kernels->scale(out, in, n, what.postscale / static_cast<double>(what.divisor));
  } else if (out != in) {
    copy_bytes(out, in, n * what.size());
  }
}

/// The tensors of an execution, and the calls in which they travel: runs of small ones in a buffer,
/// large ones alone and in pieces. Enters memory of callers, leaves a request of MPI or a call of
/// the backend; and the other way.
template <class Any>
class packed_calls {
 public:
  explicit packed_calls(basic_execution<Any>& of) noexcept : of_(of) {}

  using call = packs::call;
  std::vector<const tensor*> tensors;
  std::vector<call> calls;
  std::uint32_t next = 0;  ///< of these

  /// Runs of small tensors of one type travel together, large ones alone and in pieces. What has
  /// kept its calls has the same tensors again.
  void split() {
    if (calls.empty()) lay_out();
    if (!has_adasum_) return;
    first_adasum_ = of_.here->adasums;
    of_.here->adasums += calls.size();
  }
  void reset(bool keeps_calls) noexcept {
    tensors.clear();
    if (!keeps_calls) calls.clear();
    next = 0;
  }
  [[nodiscard]] bool all_posted() const noexcept { return next >= calls.size(); }
  void post_no_more() noexcept { next = static_cast<std::uint32_t>(calls.size()); }
  /// Whether it travels in a buffer of the library.
  [[nodiscard]] bool packs(const call& what) const noexcept {
    return what.tensors > 1 || tensors[what.first]->rounded;
  }
  // Scale factors are folded into the copy; gaps are zero, so that no reduction meets rubbish.
  void fill(const call& what, pack_position& at, std::size_t offset, std::span<std::byte> to) {
    const tools::range copying(tools::category::pack, tools::literal("pack"), to.size());
    const auto begun_at = of_.plane_.traced ? clock::now() : clock::time_point();
    const bool reduces = of_.tasks.front()->kind == op_kind::all_reduce;
    walk(
        what, at, offset, to.size(),
        [&](const tensor& each, std::size_t inside, std::size_t place, std::size_t length) {
          const std::byte* in = static_cast<const std::byte*>(each.in) + each.place_of(inside);
          if (reduces) {
            lay_values(to.data() + place, in, length / each.size(), each);
          } else {
            copy_bytes(to.data() + place, in, length);
          }
        },
        [&](std::size_t place, std::size_t length) { std::memset(to.data() + place, 0, length); });
    if (of_.plane_.traced) of_.spans_.push_back({phase::pack, begun_at, clock::now(), to.size()});
  }
  void empty(const call& what, pack_position& at, std::size_t offset,
             std::span<const std::byte> from) {
    const tools::range copying(tools::category::unpack, tools::literal("unpack"), from.size());
    const auto begun_at = of_.plane_.traced ? clock::now() : clock::time_point();
    const bool reduces = of_.tasks.front()->kind == op_kind::all_reduce;
    walk(
        what, at, offset, from.size(),
        [&](const tensor& each, std::size_t inside, std::size_t place, std::size_t length) {
          std::byte* out = static_cast<std::byte*>(each.out) + each.place_of(inside);
          if (reduces) {
            finish_values(out, from.data() + place, length / each.size(), each);
          } else {
            copy_bytes(out, from.data() + place, length);
          }
        },
        [](std::size_t, std::size_t) {});
    if (of_.plane_.traced)
      of_.spans_.push_back({phase::unpack, begun_at, clock::now(), from.size()});
  }
  // The next call of a fused operation.
  void post_next(lane& on, MPI_Comm where) {
    on.call = next++;
    const call& what = calls[on.call];
    const tensor& head = *tensors[what.first];
    const bool reduces = of_.tasks.front()->kind == op_kind::all_reduce;
    const std::size_t size = unit_of(head);
    const bool is_root = of_.tasks.front()->root == of_.here->rank;
    const void* in = nullptr;
    void* out = nullptr;
    std::size_t count = what.bytes / size;
    if (packs(what)) {
      const std::size_t end = packs::aligned(what.bytes, size);
      on.laid = on.taken = {};
      on.scattered = !is_adasum(head) && give_scattered(on, end / size, where);
      if (on.scattered) return;
      on.pack = of_.plane_.fusion.take(end);
      std::byte* to = on.pack.data();
      if (reduces || is_root) fill(what, on.laid, 0, std::span(to, end));
      in = MPI_IN_PLACE;
      out = to;
      count = end / size;
    } else {
      in = static_cast<const std::byte*>(head.in) + what.offset;
      out = static_cast<std::byte*>(head.out) + what.offset;
      if (reduces && head.prescale != 1) {
        head.kernels->scale(out, in, count, head.prescale);
        in = MPI_IN_PLACE;
      } else if (in == out) {
        in = MPI_IN_PLACE;
      } else if (is_adasum(head)) {
        copy_bytes(out, in, what.bytes);
      }
    }
    if (is_adasum(head)) return begin_adasum(on, static_cast<std::byte*>(out), where);
    MPI_Request request = MPI_REQUEST_NULL;
    if (reduces) {
      const MPI_Datatype type = head.kernels->type();
      const comm::collective_call given{op_kind::all_reduce, in, out, count, type,
                                        head.operation,      0};
      if (fits_backend(what) && of_.give_to_backend(on, given, where)) return;
      of_.add(on,
              mpi::post::iallreduce(in, out, static_cast<MPI_Count>(count), type, head.operation,
                                    where, &request),
              request);
    } else {
      const int root = of_.tasks.front()->root;
      const comm::collective_call given{op_kind::broadcast, MPI_IN_PLACE, out, count,
                                        MPI_BYTE,           MPI_OP_NULL,  root};
      if (fits_backend(what) && of_.give_to_backend(on, given, where)) return;
      of_.add(
          on,
          mpi::post::ibcast(out, static_cast<MPI_Count>(count), MPI_BYTE, root, where, &request),
          request);
    }
  }
  /// Whether there is more to do for a call before it is finished.
  bool goes_on(lane& on, MPI_Comm where) {
    const call& what = calls[on.call];
    if (!is_adasum(*tensors[what.first])) return false;
    return on.adasum->exchange.post_next(
        where,
        [&](std::byte* out, const std::byte* a, const std::byte* b) {
          for_each_vector(what, [&](const tensor& each, std::size_t at) {
            each.kernels->adasum(out + at, a + at, b + at, each.count);
          });
        },
        [&](int rc, const MPI_Request& request) { of_.add(on, rc, request); });
  }
  void finish(lane& on) {
    const call& what = calls[on.call];
    on.adasum.reset();
    const bool reduces = of_.tasks.front()->kind == op_kind::all_reduce;
    const bool is_root = of_.tasks.front()->root == of_.here->rank;
    if (packs(what)) {
      if (!on.scattered && (reduces || !is_root)) {
        empty(what, on.taken, 0, std::span(on.pack.data(), what.bytes));
      }
      if (on.pack) on.pack = {};
    } else if (reduces) {
      const tensor& each = *tensors[what.first];
      void* out = static_cast<std::byte*>(each.out) + what.offset;
      finish_values(out, out, what.bytes / each.size(), each);
    }
  }

 private:
  [[nodiscard]] bool fits_backend(const call& what) const noexcept {
    return what.bytes <= backend_up_to_;
  }
  /// It has no operation of MPI. Such a tensor is never cut, for it is one vector.
  [[nodiscard]] bool is_adasum(const tensor& what) const noexcept {
    return of_.tasks.front()->kind == op_kind::all_reduce && what.operation == MPI_OP_NULL;
  }
  void begin_adasum(lane& on, std::byte* data, MPI_Comm where) {
    const std::size_t bytes = calls[on.call].bytes;
    on.adasum = std::make_unique<typename basic_lane<Any>::adasum_part>();
    on.adasum->other = of_.plane_.fusion.take(bytes);
    on.adasum->exchange.begin(of_.here->rank, of_.here->size,
                              collectives::adasum_tag(first_adasum_ + on.call), data,
                              on.adasum->other.data(), bytes);
    if (goes_on(on, where)) return;
    // One rank alone: a lane ends with a request.
    MPI_Request request = MPI_REQUEST_NULL;
    of_.add(on, MPI_Ibarrier(where, &request), request);
  }
  /// visit(tensor, where it begins) for those of a call.
  template <class Visit>
  void for_each_vector(const call& what, Visit visit) const {
    if (!what.small) return visit(*tensors[what.first], std::size_t{0});
    packs::for_each_place(
        what.first, what.tensors, packs::spacing::tight,
        [this](std::size_t i) { return tensors[i]->bytes(); },
        [&](std::size_t i, std::size_t begin) { visit(*tensors[i], begin); });
  }
  /// What calls count in: elements to reduce, else bytes, for a rank that has joined may not know
  /// the element.
  [[nodiscard]] std::size_t unit_of(const tensor& what) const noexcept {
    return of_.tasks.front()->kind == op_kind::all_reduce ? what.kernels->size : 1;
  }
  /// Gives a pack to a backend that packs itself.
  bool give_scattered(lane& on, std::size_t count, MPI_Comm where) {
    if (of_.plane_.backend_ == nullptr || !of_.plane_.backend_->takes_scattered()) return false;
    if (!fits_backend(calls[on.call])) return false;
    const task& head = *of_.tasks.front();
    const bool reduces = head.kind == op_kind::all_reduce;
    const tensor& first = *tensors[calls[on.call].first];
    // What a backend asks for ends anywhere between two elements; they must lie at multiples.
    if (reduces && !std::has_single_bit(first.kernels->size)) return false;
    comm::collective_call given{head.kind,
                                nullptr,
                                nullptr,
                                count,
                                reduces ? first.kernels->type() : MPI_BYTE,
                                reduces ? first.operation : MPI_OP_NULL,
                                reduces ? 0 : head.root};
    given.scattered = &on;
    return of_.give_to_backend(on, given, where);
  }
  /// Walks over a range of the pack, going on from `at`. `visit` gets a tensor, the offset in it
  /// and the offset in the range; `gap` gets a part of the range that belongs to no tensor.
  template <class Visit, class Gap>
  void walk(const call& what, pack_position& at, std::size_t offset, std::size_t bytes, Visit visit,
            Gap gap) const {
    if (!what.small) {
      visit(*tensors[what.first], what.offset + offset, std::size_t{0}, bytes);
      return;
    }
    std::size_t done = 0;
    while (at.tensor < what.tensors) {
      const tensor& each = *tensors[what.first + at.tensor];
      const std::size_t size = each.bytes();
      const std::size_t begin = packs::begin_behind(at.end, size, packs::spacing::tight);
      if (offset + done < begin) {
        const std::size_t length = std::min(begin - (offset + done), bytes - done);
        gap(done, length);
        done += length;
      }
      const std::size_t inside = offset + done - begin;
      if (offset + done < begin) return;
      const std::size_t length = std::min(size - inside, bytes - done);
      if (length != 0) visit(each, inside, done, length);
      done += length;
      if (inside + length != size) return;
      at.end = begin + size;
      ++at.tensor;
    }
    if (done != bytes) gap(done, bytes - done);
  }

  void lay_out() {
    const coordinator_options& options = of_.plane_.options_;
    backend_up_to_ = options.backend_up_to;
    const bool reduces = of_.tasks.front()->kind == op_kind::all_reduce;
    has_adasum_ = false;
    const auto item_of = [&](std::uint32_t i) {
      const tensor& each = *tensors[i];
      has_adasum_ = has_adasum_ || is_adasum(each);
      packs::item one;
      one.bytes = each.bytes();
      // What is converted must fit into a buffer.
      one.small = one.bytes <= options.fusion_threshold &&
                  (!each.rounded || one.bytes <= options.fusion_buffer);
      one.joins = i == 0 || !reduces ||
                  (tensors[i - 1]->kernels->element == each.kernels->element &&
                   tensors[i - 1]->operation == each.operation);
      if (!one.small && !is_adasum(each)) {
        const std::size_t unit = unit_of(each);
        const std::size_t most = each.rounded ? std::min(options.piece, options.fusion_buffer)
                                              : static_cast<std::size_t>(options.piece);
        one.piece = std::max<std::size_t>(most / unit, 1) * unit;
      }
      return one;
    };
    packs::lay_out(tensors.size(), packs::spacing::tight, options.fusion_buffer, item_of,
                   [this](const call& one) { calls.push_back(one); });
  }

  basic_execution<Any>& of_;
  std::uint64_t backend_up_to_ = 0;  // when it was elected, as on all ranks
  bool has_adasum_ = false;
  std::uint64_t first_adasum_ = 0;  // the number of the first call, if there is one of op::adasum
};

}  // namespace cohort::coordination
