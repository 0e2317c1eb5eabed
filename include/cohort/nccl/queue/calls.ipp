// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The calls of NCCL that operations are made of: for `nccl/queue/device_queue.ipp`.

#include <cohort/device/memory.hpp>
#include <cohort/nccl/life/state.hpp>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

namespace cohort::nccl {

namespace detail {

[[nodiscard]] inline bool launches(const call& one) noexcept {
  return one.count != 0 || one.what == op_kind::barrier || one.graph != nullptr || one.elsewhere;
}

/// From 2.28.3 on NCCL has all_to_all, gather and scatter; before they are groups of messages.
[[nodiscard]] inline bool has_native_exchange() noexcept {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 3)
  return library_version() >= NCCL_VERSION(2, 28, 3);
#else
  return false;
#endif
}

/// Adds the outcome of one more call: the first failure stays, and "in progress" outweighs success.
inline void keep(ncclResult_t& all, ncclResult_t one) noexcept {
  if (!failed(all) && one != ncclSuccess) all = one;
}

/// all_to_all, gather and scatter as messages.
inline ncclResult_t exchange(const call& one, const communicator_state& comm, cudaStream_t on) {
  const std::size_t step = one.count * one.width;
  const auto* from = static_cast<const std::byte*>(one.from);
  auto* to = static_cast<std::byte*>(one.to);
  const bool is_root = comm.rank == one.root;
  ncclResult_t all = ncclGroupStart();
  if (failed(all)) return all;
  for (int peer = 0; peer < comm.size; ++peer) {
    const std::size_t at = static_cast<std::size_t>(peer) * step;
    const bool sends = one.what == op_kind::all_to_all ||
                       (one.what == op_kind::gather ? peer == one.root : is_root);
    const bool receives = one.what == op_kind::all_to_all ||
                          (one.what == op_kind::gather ? is_root : peer == one.root);
    if (sends) {
      const std::byte* part = one.what == op_kind::gather ? from : from + at;
      keep(all, ncclSend(part, one.count, one.type, peer, comm.native, on));
    }
    if (receives) {
      std::byte* part = one.what == op_kind::scatter ? to : to + at;
      keep(all, ncclRecv(part, one.count, one.type, peer, comm.native, on));
    }
  }
  keep(all, ncclGroupEnd());
  return all;
}

inline ncclResult_t post(const call& one, ncclRedOp_t op, communicator_state& comm,
                         cudaStream_t on);

/// A sum of scaled contributions, where there is one rank. NCCL (2.28.3 at least) does that in as
/// many blocks as there are 16 KiB, 32 at most, and leaves out what they do not divide. So it gets
/// parts that are divided.
inline ncclResult_t post_scaled_alone(const call& one, ncclRedOp_t op, communicator_state& comm,
                                      cudaStream_t on) {
  constexpr std::size_t block = std::size_t{16} << 10U;
  constexpr std::size_t most = 32 * block;
  ncclResult_t all = ncclSuccess;
  std::size_t bytes = one.count * one.width;
  call part = one;
  part.op.is_scaled = false;  // that is in `op`
  while (bytes != 0 && !failed(all)) {
    const std::size_t now = bytes >= most    ? bytes / most * most
                            : bytes >= block ? bytes / block * block
                                             : bytes;
    part.count = now / one.width;
    keep(all, post(part, op, comm, on));
    part.from = static_cast<const std::byte*>(part.from) + now;
    part.to = static_cast<std::byte*>(part.to) + now;
    bytes -= now;
  }
  return all;
}

inline ncclResult_t post(const call& one, ncclRedOp_t op, communicator_state& comm,
                         cudaStream_t on) {
  if (one.elsewhere) return ncclSuccess;
  if (one.graph != nullptr) {
    device::check(cudaGraphLaunch(one.graph, on), "cudaGraphLaunch", comm.device);
    return ncclSuccess;
  }
  if (one.op.is_scaled && comm.size == 1) return post_scaled_alone(one, op, comm, on);
  const ncclComm_t native = comm.native;
  switch (one.what) {
    case op_kind::all_reduce:
      return ncclAllReduce(one.from, one.to, one.count, one.type, op, native, on);
    case op_kind::broadcast:
      return ncclBroadcast(one.from, one.to, one.count, one.type, one.root, native, on);
    case op_kind::reduce:
      return ncclReduce(one.from, one.to, one.count, one.type, op, one.root, native, on);
    case op_kind::all_gather:
      return ncclAllGather(one.from, one.to, one.count, one.type, native, on);
    case op_kind::reduce_scatter:
      return ncclReduceScatter(one.from, one.to, one.count, one.type, op, native, on);
    case op_kind::all_to_all:
    case op_kind::gather:
    case op_kind::scatter:
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 3)
      if (comm.native_exchange) {
        if (one.what == op_kind::all_to_all) {
          return ncclAlltoAll(one.from, one.to, one.count, one.type, native, on);
        }
        if (one.what == op_kind::gather) {
          return ncclGather(one.from, one.to, one.count, one.type, one.root, native, on);
        }
        return ncclScatter(one.from, one.to, one.count, one.type, one.root, native, on);
      }
#endif
      return exchange(one, comm, on);
    case op_kind::send:
      return ncclSend(one.from, one.count, one.type, one.root, native, on);
    case op_kind::recv:
      return ncclRecv(one.to, one.count, one.type, one.root, native, on);
    case op_kind::barrier:
      return ncclAllReduce(comm.scratch, comm.scratch, 1, ncclInt32, ncclSum, native, on);
    default:
      return ncclInternalError;
  }
}

/// After an operation has failed: the streams of its borrowed buffers wait for what is still
/// queued, so that memory which is freed in their order is freed after that.
inline void let_free_behind(const std::vector<buffer_use>& uses,
                            const device::event& mark) noexcept {
  for (const buffer_use& use : uses) {
    try {
      // Memory with a lease is held until then, so its stream need not wait.
      if (use.producer && !use.lease) static_cast<void>(use.producer->try_wait(mark));
    } catch (...) {  // a device that has gone frees nothing
    }
  }
}

/// NCCL's operation for a call; one that is made for this call is added to `made`.
inline ncclResult_t resolve(const call& one, const communicator_state& comm,
                            std::vector<ncclRedOp_t>& made, ncclRedOp_t& op) {
  op = one.op.op;
  // The average over one rank is a multiplication by 1 for NCCL: see post_scaled_alone. It also
  // refuses that for numbers of 8 bits.
  if (op == ncclAvg && comm.size == 1) op = ncclSum;
  if (!one.op.is_scaled) return ncclSuccess;
  auto factor = one.op.factor;
  const ncclResult_t code =
      ncclRedOpCreatePreMulSum(&op, factor.data(), one.type, ncclScalarHostImmediate, comm.native);
  if (!failed(code)) made.push_back(op);
  return code;
}

}  // namespace detail

}  // namespace cohort::nccl
