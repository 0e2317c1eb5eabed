// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The part of an elected reduction that MPI does: between nodes, or because NCCL cannot.

#include <cohort/nccl/backend/device_plane.hpp>
#include <cohort/nccl/backend/elected.ipp>

#include <cohort/device/completion.hpp>
#include <cohort/mpi/post.hpp>
#include <cohort/p2p/wait.hpp>

#include <algorithm>
#include <mutex>
#include <vector>

namespace cohort::nccl {

// ---- what goes this way ----------------------------------------------------------------------

namespace detail {

[[nodiscard]] inline bool is_reduction(const comm::device_call& what) noexcept {
  using comm::collective;
  return what.kind == collective::all_reduce || what.kind == collective::reduce ||
         what.kind == collective::reduce_scatter;
}

/// Why NCCL cannot reduce that, by what is equal on all ranks; null: it can.
[[nodiscard]] inline const char* not_of_nccl(const comm::device_call& what) noexcept {
  if (what.reduction == device_reduction::none || what.reduction > device_reduction::max) {
    return "NCCL has no such reduction";
  }
  for (const comm::device_tensor& one : what.tensors) {
    const auto as = reduced_element(one);
    if (!as) return "NCCL reduces no elements of such a type";
    if (as->width != 1 && what.reduction != device_reduction::sum &&
        what.reduction != device_reduction::average) {
      return "NCCL has sum and average for complex numbers only";
    }
  }
  return nullptr;
}

/// The host applies all factors, and divides.
inline treatment on_the_host(const comm::device_tensor& of, device_reduction reduction) noexcept {
  treatment how;
  how.by_host = true;
  how.scale_before = of.prescale;
  how.scale_after = of.postscale;
  if (reduction == device_reduction::average) how.divide_after = of.divisor;
  return how;
}

}  // namespace detail

/// Empty: MPI can.
COHORT_INLINE std::string device_plane::not_of_mpi(const comm::device_call& what) {
  for (const comm::device_tensor& one : what.tensors) {
    if (one.operation == MPI_OP_NULL) return "nor has MPI";
    if (one.size > between_bytes) return "and an element is larger than the memory on its way";
  }
  return {};
}

COHORT_INLINE bool device_plane::goes_by_host(const comm::device_call& what) const noexcept {
  return options_.host_path && what.use == comm::device_use::run && detail::is_reduction(what) &&
         detail::not_of_nccl(what) != nullptr;
}

// ---- pieces ----------------------------------------------------------------------------------

/// The first part of an operation of two is over.
COHORT_INLINE void device_plane::go_between(elected_work& op) {
  cohort::communicator over;
  std::vector<between_piece> pieces;
  source_->exclusively([&] {
    op.stage_ = elected_work::stage::between_nodes;
    if (op.what_ == nullptr || failed_) return;
    const set_state& set = sets_[op.what_->set];
    over = op.by_host_ ? set.everybody : set.leaders;
    if (over) pieces = op.by_host_ ? pieces_for_host(op) : pieces_of(op);
  });
  if (!over) return come_back(op, nullptr);
  auto done = [self = shared_from_this(), &op](std::exception_ptr why) {
    self->come_back(op, std::move(why));
  };
  progress::begin_look_task(
      detail::at_next_look(*source_, reduce_between(std::move(pieces), std::move(over))),
      {.verb = "a reduction on a device, in MPI", .owner = this}, std::move(done));
}

COHORT_INLINE std::vector<device_plane::between_piece> device_plane::pieces_of(
    const elected_work& op) {
  std::vector<between_piece> pieces;
  std::byte* const base = blocks_[op.block_].memory.data();
  for (const auto& run : op.runs_) {
    const comm::device_tensor& first = op.tensors()[run.first];
    const std::size_t all = run.bytes / first.size;
    const std::size_t most = unpack_staging_.size() / first.size;
    for (std::size_t done = 0; done < all; done += most) {
      const std::size_t count = std::min(most, all - done);
      pieces.push_back(
          {base + run.begin + done * first.size,
           count * first.size,
           {{0, count, first.math->type(), first.math->operation(op.what_->reduction), -1}}});
    }
  }
  return pieces;
}

/// As much as fits is copied at once, and each tensor in it reduced by a call of its own: what lies
/// between them is no element.
COHORT_INLINE std::vector<device_plane::between_piece> device_plane::pieces_for_host(
    const elected_work& op) {
  std::vector<between_piece> pieces;
  const std::size_t room = unpack_staging_.size();
  const auto add = [&](std::byte* at, std::size_t count, const comm::device_tensor& of, int root) {
    const std::size_t most = room / of.size;
    for (std::size_t done = 0; done < count;) {
      const std::size_t part = std::min(most, count - done);
      std::byte* const here = at + done * of.size;
      if (pieces.empty() ||
          static_cast<std::size_t>(here - pieces.back().at) + part * of.size > room) {
        pieces.push_back({here, 0, {}});
      }
      between_piece& last = pieces.back();
      const auto offset = static_cast<std::size_t>(here - last.at);
      last.bytes = offset + part * of.size;
      last.parts.push_back({offset, part, of.math->type(), of.operation, root});
      done += part;
    }
  };
  const int root = op.what_->kind == comm::collective::reduce ? op.what_->root : -1;
  op.for_each_packed([&](const auto&, const comm::device_tensor& one, std::byte* at) {
    if (op.what_->kind != comm::collective::reduce_scatter) return add(at, one.count, one, root);
    for (int rank = 0; rank < op.comm->size; ++rank) {
      const std::size_t part = detail::part_for(one.count, rank, op.comm->size);
      add(at, part, one, rank);
      at += part * one.size;
    }
  });
  return pieces;
}

/// One after the other through pinned memory, in the order of the packs, which is that of all
/// ranks of `over`.
COHORT_INLINE progress::look_task<> device_plane::reduce_between(std::vector<between_piece> pieces,
                                                                 cohort::communicator over) {
  const device::stream on = *unpacking_;
  // After a failure nothing is started any more: MPI may have the memory on the way for ever.
  const auto go_on = [this] {  // with the lock of a look
    if (failed_) throw std::system_error(failed_, "MPI's part of a reduction on a device");
  };
  for (const between_piece& each : pieces) {
    go_on();
    device::check(cudaMemcpyAsync(unpack_staging_.data(), each.at, each.bytes,
                                  cudaMemcpyDeviceToHost, on.get()),
                  "cudaMemcpyAsync", device_);
    auto fetched = detail::reached(*source_, on);
    co_await fetched;
    go_on();
    auto reducing = reduce_piece(each, over);
    co_await reducing;
    go_on();
    device::check(cudaMemcpyAsync(each.at, unpack_staging_.data(), each.bytes,
                                  cudaMemcpyHostToDevice, on.get()),
                  "cudaMemcpyAsync", device_);
    auto brought = detail::reached(*source_, on);  // the next piece goes through the same memory
    co_await brought;
  }
}

/// All its parts are posted at once. Where that fails for one, MPI may still have those before it:
/// it ends when they do.
COHORT_INLINE progress::look_task<> device_plane::reduce_piece(const between_piece& piece,
                                                               cohort::communicator over) {
  struct posted {
    MPI_Request request = MPI_REQUEST_NULL;
    int code = MPI_SUCCESS;
  };
  std::vector<posted> all(piece.parts.size());
  const auto post_all = [&] {
    int code = MPI_SUCCESS;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const between_part& one = piece.parts[i];
      void* const at = unpack_staging_.data() + one.offset;
      const auto count = static_cast<MPI_Count>(one.count);
      const bool receives = one.root < 0 || one.root == over.rank();
      const void* const from = receives ? MPI_IN_PLACE : at;
      if (code != MPI_SUCCESS) {
        // Nothing after one that has failed: the other ranks end with an error.
      } else if (one.root < 0) {
        code = mpi::post::iallreduce(from, at, count, one.type, one.operation, over.native(),
                                     &all[i].request);
      } else {
        code = mpi::post::ireduce(from, receives ? at : nullptr, count, one.type, one.operation,
                                  one.root, over.native(), &all[i].request);
      }
      all[i].code = code;
    }
  };
  std::error_code bad;
  for (std::size_t i = 0; i < all.size(); ++i) {
    auto reduced = comm::joint::request(over, [&](MPI_Request* request) {
      if (i == 0) post_all();
      *request = all[i].request;
      return all[i].code;
    });
    try {
      co_await reduced;
    } catch (const std::system_error& failed) {
      if (!bad) bad = failed.code();
    }
  }
  if (bad) throw std::system_error(bad, "MPI's part of a reduction on a device");
}

/// The second part is queued, before all that was elected later.
COHORT_INLINE void device_plane::come_back(elected_work& op, std::exception_ptr why) {
  std::error_code code = detail::problem_of(why).code;
  std::vector<work*> ended;
  source_->exclusively([&] {
    op.stage_ = elected_work::stage::back;
    if (op.what_ == nullptr) code = errc::aborted;
    if (code) {  // nothing follows: the ranks do not agree any more on what MPI is to reduce next
      op.fail(code);
      if (!failed_) failed_ = code;
    }
    op.prepared_ = false;
    op.ready_.reset();
    if (op.what_ != nullptr && !code) op.timed_ = times_.start(*op.what_);
    op.ends = op.wanted_;
    op.uses = std::move(op.kept_uses_);
    op.uses.push_back({"pack", nullptr, 0, device_, {}, blocks_[op.block_].memory.lease()});
    if (between_ == &op) between_ = nullptr;
    if (op.error() || !source_->submit_held(op)) {
      ended.push_back(&op);
    } else {
      queued_.push_back(&op);
    }
    submit_what_can_be(ended);
  });
  finish_outside(ended);
  source_->engine().started();
}

}  // namespace cohort::nccl
