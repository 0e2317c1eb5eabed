// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Bodies of `nccl/extra/host_path.hpp`.

#include <cohort/comm/joint.hpp>
#include <cohort/mpi/post.hpp>
#include <cohort/nccl/backend/device_plane.hpp>

#include <algorithm>
#include <utility>
#include <vector>

namespace cohort::nccl {

COHORT_INLINE std::string host_path::not_of_mpi(const comm::device_call& what) {
  for (const comm::tensor& one : what.tensors) {
    if (one.operation == MPI_OP_NULL) return "nor has MPI";
    if (one.size() > pack_memory::mpi_bytes) {
      return "and an element is larger than the memory on its way";
    }
  }
  return {};
}

COHORT_INLINE bool host_path::takes(const comm::device_call& what) const noexcept {
  return plane_.options_.host_path && what.use == comm::device_use::run &&
         is_reduction(what.kind) && detail::not_of_nccl(what) != nullptr;
}

COHORT_INLINE std::string host_path::what_holds(const elected_work& op) const {
  if (&op != busy_ || op.stage_ != elected_work::stage::between_nodes) return {};
  return op.by_host_ ? "what MPI reduces of it" : "what MPI reduces of it between nodes";
}

COHORT_INLINE std::string host_path::in_words() const {
  const std::string why = what_holds(*busy_);
  return std::string(busy_->verb) + " before it, and that for " +
         (why.empty() ? "the first part of two" : why);
}

COHORT_INLINE std::optional<comm::backend_completion> host_path::give_up() {
  if (busy_ == nullptr || busy_->stage_ != elected_work::stage::between_nodes) return {};
  busy_->what_ = nullptr;
  return std::exchange(busy_, nullptr)->done_;
}

COHORT_INLINE void host_path::go_between(elected_work& op) {
  cohort::communicator over;
  std::vector<piece> pieces;
  issue_source& source = *plane_.source_;
  source.exclusively([&] {
    op.stage_ = elected_work::stage::between_nodes;
    if (op.what_ == nullptr || plane_.failed_) return;
    const device_set& set = plane_.sets_[op.what_->set];
    over = op.by_host_ ? set.everybody : set.leaders;
    if (over) pieces = op.by_host_ ? pieces_of_tensors(op) : pieces_of_runs(op);
  });
  if (!over) return come_back(op, nullptr);
  auto done = [self = plane_.shared_from_this(), &op](std::exception_ptr why) {
    self->host_.come_back(op, std::move(why));
  };
  progress::begin_look_task(
      detail::at_next_look(source, reduce(std::move(pieces), std::move(over))),
      {.verb = "a reduction on a device, in MPI", .owner = &plane_}, std::move(done));
}

// ---- pieces ----------------------------------------------------------------------------------

COHORT_INLINE std::vector<host_path::piece> host_path::pieces_of_runs(
    const elected_work& op) const {
  std::vector<piece> pieces;
  for (const pack_layout::run& run : op.layout_.runs()) {
    const comm::tensor& first = op.tensors()[run.first];
    const mpi::element_kernels& of = *first.kernels;
    packs::cut(run.bytes / of.size, plane_.memory_.after.size() / of.size,
               [&](std::size_t begin, std::size_t count) {
                 pieces.push_back({op.buffer() + run.begin + begin * of.size,
                                   count * of.size,
                                   {{0, count, of.type(), of.operation(op.what_->reduction), -1}}});
               });
  }
  return pieces;
}

/// As much as fits is copied at once, and each tensor in it reduced by a call of its own: what lies
/// between them is no element.
COHORT_INLINE std::vector<host_path::piece> host_path::pieces_of_tensors(
    const elected_work& op) const {
  std::vector<piece> pieces;
  const std::size_t room = plane_.memory_.after.size();
  const auto add = [&](std::byte* at, std::size_t count, const comm::tensor& of, int root) {
    packs::cut(count, room / of.size(), [&](std::size_t begin, std::size_t part) {
      std::byte* const here = at + begin * of.size();
      const std::size_t bytes = part * of.size();
      if (pieces.empty() || static_cast<std::size_t>(here - pieces.back().at) + bytes > room) {
        pieces.push_back({here, 0, {}});
      }
      piece& last = pieces.back();
      const auto offset = static_cast<std::size_t>(here - last.at);
      last.bytes = offset + bytes;
      last.parts.push_back({offset, part, of.kernels->type(), of.operation, root});
    });
  };
  const int root = op.what_->kind == op_kind::reduce ? op.what_->root : -1;
  const auto add_all = [&](const auto&, const comm::tensor& one, std::byte* at) {
    if (op.what_->kind != op_kind::reduce_scatter) return add(at, one.count, one, root);
    for (int rank = 0; rank < op.comm->size; ++rank) {
      const std::size_t part = part_of(one.count, rank, op.comm->size);
      add(at, part, one, rank);
      at += part * one.size();
    }
  };
  op.layout_.for_each_packed(op.tensors(), op.buffer(), add_all);
  return pieces;
}

/// One after the other through pinned memory, in the order of the packs, which is that of all
/// ranks of `over`.
COHORT_INLINE progress::look_task<> host_path::reduce(std::vector<piece> pieces,
                                                      cohort::communicator over) {
  const device::stream on = *plane_.memory_.unpacking;
  // After a failure nothing is started any more: MPI may have the memory on the way for ever.
  const auto go_on = [this] {  // with the lock of a look
    if (plane_.failed_)
      throw std::system_error(plane_.failed_, "MPI's part of a reduction on a device");
  };
  for (const piece& each : pieces) {
    go_on();
    device::check(cudaMemcpyAsync(plane_.memory_.after.data(), each.at, each.bytes,
                                  cudaMemcpyDeviceToHost, on.get()),
                  "cudaMemcpyAsync", plane_.device_);
    auto fetched = detail::reached(*plane_.source_, on);
    co_await fetched;
    go_on();
    auto reducing = reduce_piece(each, over);
    co_await reducing;
    go_on();
    device::check(cudaMemcpyAsync(each.at, plane_.memory_.after.data(), each.bytes,
                                  cudaMemcpyHostToDevice, on.get()),
                  "cudaMemcpyAsync", plane_.device_);
    auto brought =
        detail::reached(*plane_.source_, on);  // the next piece goes through the same memory
    co_await brought;
  }
}

/// All its parts are posted at once. Where that fails for one, MPI may still have those before it:
/// it ends when they do.
COHORT_INLINE progress::look_task<> host_path::reduce_piece(const piece& whole,
                                                            cohort::communicator over) {
  struct posted {
    MPI_Request request = MPI_REQUEST_NULL;
    int code = MPI_SUCCESS;
  };
  std::vector<posted> all(whole.parts.size());
  const auto post_all = [&] {
    int code = MPI_SUCCESS;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const reduction& one = whole.parts[i];
      void* const at = plane_.memory_.after.data() + one.offset;
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
COHORT_INLINE void host_path::come_back(elected_work& op, std::exception_ptr why) {
  std::error_code code = detail::problem_of(why).code;
  plane_.change([&](std::vector<work*>& ended) {
    op.stage_ = elected_work::stage::back;
    if (op.what_ == nullptr) code = errc::aborted;
    if (code) {  // nothing follows: the ranks do not agree any more on what MPI is to reduce next
      op.fail(code);
      if (!plane_.failed_) plane_.failed_ = code;
    }
    op.prepared_ = false;
    op.ready_.reset();
    if (op.what_ != nullptr && !code) op.timed_ = plane_.times_.start(*op.what_);
    op.ends = op.wanted_;
    op.uses = std::move(op.kept_uses_);
    if (op.block_ != nullptr) {
      op.uses.push_back({"pack", nullptr, 0, plane_.device_, {}, op.block_->memory.lease()});
    }
    forget(op);
    plane_.queue(op, ended);
  });
}

}  // namespace cohort::nccl
