// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// The calls of NCCL's double; nccl_control.hpp says what it is and what it is not.
#include "support/fake_gpu/nccl_library.hpp"

#include <sys/random.h>

#include <algorithm>
#include <cstring>

namespace fake_nccl {
namespace {

// ---- collectives ------------------------------------------------------------------------------

bool overlap(const char* one, std::size_t bytes, const char* two, std::size_t more) {
  return one < two + more && two < one + bytes;
}

/// NCCL's rules for working in place. What breaks them gives wrong data.
void check_overlap(const communicator& of, const operation& what) {
  const std::size_t bytes = what.count * size_of(what.type);
  const auto ranks = static_cast<std::size_t>(of.ranks);
  const auto me = static_cast<std::size_t>(of.rank);
  const auto* from = static_cast<const char*>(what.from);
  const auto* to = static_cast<const char*>(what.to);
  if (from == nullptr || to == nullptr) return;
  const bool root = of.rank == what.root;
  std::size_t in = bytes;
  std::size_t out = bytes;
  bool in_place = from == to;
  switch (what.what) {
    case verb::send:
    case verb::receive:
      return;
    case verb::reduce:
      if (!root) return;
      break;
    case verb::all_gather:
      out *= ranks;
      in_place = from == to + me * bytes;
      break;
    case verb::reduce_scatter:
      in *= ranks;
      in_place = to == from + me * bytes;
      break;
    case verb::all_to_all:
      in *= ranks;
      out *= ranks;
      in_place = false;
      break;
    case verb::gather:
      if (!root) return;
      out *= ranks;
      in_place = from == to + me * bytes;
      break;
    case verb::scatter:
      if (!root) return;
      in *= ranks;
      in_place = to == from + me * bytes;
      break;
    default:
      break;
  }
  if (!in_place && overlap(from, in, to, out)) {
    internal::fault(std::string(name_of(what.what)) + " of " + of.name +
                    ": the buffers overlap in a way that NCCL does not allow");
  }
}

/// Where a collective works in memory that is registered for its communicator. All ranks must be
/// at the same offset, or at none; where each has a part of its own, all or none must be there.
std::uint64_t place_of(const shared_communicator& of, const operation& what) {
  const bool writes_everywhere = what.what == verb::broadcast || what.what == verb::scatter;
  const auto* const data = static_cast<const char*>(writes_everywhere ? what.to : what.from);
  const bool same_offset =
      what.what == verb::all_reduce || what.what == verb::broadcast || what.what == verb::reduce;
  for (const auto& [handle, each] : the().registered) {
    if (each.of.lock() != of || data < each.memory || data >= each.memory + each.bytes) continue;
    return same_offset ? static_cast<std::uint64_t>(data - each.memory) + 1 : 1;
  }
  return 0;
}

ncclResult_t enqueue(const char* function, operation what, ncclComm_t comm, cudaStream_t stream) {
  lock hold(the().mutex);
  return grouped(hold, [&]() -> ncclResult_t {
    if (const auto code = enter(function, hold)) return code;
    const auto of = find(comm);
    if (!of) return ncclInvalidArgument;
    check_order(function, of->device);
    if (const auto code = ensure_ready(*of)) return code;
    if (of->finalized) return fail(ncclInvalidUsage, of->name + " is finalized");
    if (internal::state(of->device) != cudaSuccess) {
      return fail(ncclUnhandledCudaError, "the device has an error");
    }
    if (what.root < 0 || what.root >= of->ranks || size_of(what.type) == 0) {
      return fail(ncclInvalidArgument, std::string(function) + ": root, peer or type is none");
    }
    const int factor = int(what.op) - int(ncclNumOps);
    if (what.op < 0 || factor >= int(of->factors.size()) ||
        (factor >= 0 && (!of->factors[static_cast<std::size_t>(factor)].used ||
                         of->factors[static_cast<std::size_t>(factor)].type != what.type))) {
      return fail(ncclInvalidArgument, std::string(function) + ": not an operation for this type");
    }
    if (factor >= 0) what.factor = of->factors[static_cast<std::size_t>(factor)];
    const bool message = what.what == verb::send || what.what == verb::receive;
    if (!message && what.count == 0) return ncclSuccess;
    check_overlap(*of, what);
    if (!message) what.place = place_of(of, what);
    if (what.place != 0) ++the().in_registered_memory;
    if (of->ranks == 1 && !message) {
      if (size_of(what.type) == 1 && what.type != ncclInt8 && what.type != ncclUint8 &&
          multiplies_alone(what)) {
        return fail(ncclInvalidArgument, "one rank does not multiply numbers of 8 bits");
      }
      if (what.from == what.to && !what.factor.used) return ncclSuccess;
      const int before = internal::current();
      internal::make_current(of->device);
      const bool taken =
          internal::device_of(stream) == of->device &&
          internal::enqueue(stream, [what](std::uint64_t) { return [what] { run_alone(what); }; });
      internal::make_current(before);
      return taken ? ncclSuccess : fail(ncclUnhandledCudaError, "a stream did not take the copy");
    }
    for (const posted& one : group.operations) {
      if (one.of != of || internal::capture_of(one.stream) == internal::capture_of(stream))
        continue;
      return fail(ncclInvalidUsage,
                  "streams of a group must be captured by the same graph, or none");
    }
    group.operations.push_back({of, what, stream});
    return ncclSuccess;
  });
}

ncclResult_t collective(const char* function, verb what, const void* from, void* to,
                        std::size_t count, ncclDataType_t type, ncclComm_t comm,
                        cudaStream_t stream, int root = 0, ncclRedOp_t op = ncclSum) {
  operation made;
  made.what = what;
  made.from = from;
  made.to = to;
  made.count = count;
  made.type = type;
  made.op = op;
  made.root = root;
  return enqueue(function, made, comm, stream);
}

template <class Get>
ncclResult_t ask(const char* function, ncclComm_t comm, int* result, Get get) {
  lock hold(the().mutex);
  if (const auto code = enter(function, hold)) return code;
  const auto of = find(comm);
  if (!of || result == nullptr) return ncclInvalidArgument;
  if (const auto code = ensure_ready(*of)) return code;
  *result = get(*of);
  return ncclSuccess;
}

}  // namespace
}  // namespace fake_nccl

// ---- the part of NCCL -------------------------------------------------------------------------

using namespace fake_nccl;  // NOLINT: this file is the double

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  lock hold(the().mutex);
  if (const auto code = enter("ncclGetVersion", hold)) return code;
  if (version == nullptr) return ncclInvalidArgument;
  *version = the().version;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  lock hold(the().mutex);
  if (const auto code = enter("ncclGetUniqueId", hold)) return code;
  if (id == nullptr) return ncclInvalidArgument;
  if (getrandom(id->internal, sizeof id->internal, 0) != ssize_t(sizeof id->internal)) {
    return fail(ncclSystemError, "no random numbers");
  }
  std::memcpy(id->internal, "fakenccl", 8);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  lock hold(the().mutex);
  return make(hold, "ncclCommInitRankConfig", comm, ranks, id, rank, config);
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  lock hold(the().mutex);
  return make(hold, "ncclCommInitRank", comm, ranks, id, rank, nullptr);
}

ncclResult_t ncclCommInitAll(ncclComm_t* comms, int devices, const int* device_list) {
  ncclUniqueId id;
  if (const auto code = ncclGetUniqueId(&id)) return code;
  lock hold(the().mutex);
  if (const auto code = enter("ncclCommInitAll", hold)) return code;
  const int before = internal::current();
  ++group.depth;
  for (int i = 0; i < devices; ++i) {
    internal::make_current(device_list == nullptr ? i : device_list[i]);
    make(hold, "ncclCommInitRank", &comms[i], devices, id, i, nullptr);
  }
  internal::make_current(before);
  return end_group(hold);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* made,
                           ncclConfig_t* config) {
  lock hold(the().mutex);
  return grouped(hold, [&]() -> ncclResult_t {
    if (const auto code = enter("ncclCommSplit", hold)) return code;
    const auto parent = find(comm);
    if (!parent || made == nullptr || (color < 0 && color != NCCL_SPLIT_NOCOLOR)) {
      return fail(ncclInvalidArgument, "ncclCommSplit: an invalid argument");
    }
    *made = nullptr;
    check_order("ncclCommSplit", parent->device);
    if (const auto code = ensure_ready(*parent)) return code;
    if (parent->finalized) return fail(ncclInvalidUsage, parent->name + " is finalized");
    auto making = std::make_shared<job>();
    making->of = {parent};
    shared_communicator child;
    if (color != NCCL_SPLIT_NOCOLOR) {
      child = std::make_shared<communicator>();
      child->name = parent->name + "/" + std::to_string(color);
      child->device = parent->device;
      child->generation = parent->generation;
      child->blocking = parent->blocking;
      child->linked = false;
      if (const auto code = read_config(*child, config)) return code;
      making->of.push_back(child);
      the().communicators[child.get()] = child;
      *made = reinterpret_cast<ncclComm_t>(child.get());
    }
    const std::uint64_t which = parent->splits++;
    rank_slot& mine = parent->mine();
    mine.split[which % 4].color = color;
    mine.split[which % 4].key = key;
    mine.splits.store(which + 1);
    ring(*parent->shared);
    making->step = [parent, child, which, color]() -> std::optional<ncclResult_t> {
      if (parent->aborted || (child && child->aborted)) return ncclInternalError;
      if (child && child->shared != nullptr) return joined(*child);
      if (!device_idle(parent->device)) return std::nullopt;  // it allocates
      std::vector<std::pair<int, int>> members;               // key, rank in the parent
      for (int i = 0; i < parent->ranks; ++i) {
        const rank_slot& slot = parent->shared->ranks[i];
        if (slot.splits.load() <= which) return std::nullopt;
        const auto& asked = slot.split[which % 4];
        if (asked.color == color) members.emplace_back(asked.key, i);
      }
      if (!child) return ncclSuccess;
      std::sort(members.begin(), members.end());
      for (std::size_t i = 0; i < members.size(); ++i) {
        if (members[i].second == parent->rank) child->rank = static_cast<int>(i);
      }
      child->ranks = static_cast<int>(members.size());
      child->key = parent->key + "." + std::to_string(which) + "." + std::to_string(color);
      child->linked = true;
      if (const auto code = attach(*child)) return code;
      return std::nullopt;
    };
    group.makings.push_back(making);
    return ncclSuccess;
  });
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  lock hold(the().mutex);
  return grouped(hold, [&]() -> ncclResult_t {
    if (const auto code = enter("ncclCommFinalize", hold)) return code;
    const auto of = find(comm);
    if (!of) return ncclInvalidArgument;
    check_order("ncclCommFinalize", of->device);
    if (const auto code = ensure_ready(*of)) return code;
    if (of->finalized) return fail(ncclInvalidArgument, of->name + " is finalized already");
    of->finalized = true;
    group.makings.push_back(finalizing(of));
    return ncclSuccess;
  });
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  lock hold(the().mutex);
  return ended_by(hold, "ncclCommDestroy", comm, false);
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  lock hold(the().mutex);
  return ended_by(hold, "ncclCommAbort", comm, true);
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}

const char* ncclGetLastError(ncclComm_t comm) {
  thread_local std::string text;
  const std::lock_guard hold(texts().mutex);
  const auto found = texts().of.find(reinterpret_cast<const communicator*>(comm));
  text = found == texts().of.end() ? texts().last : found->second;
  return text.c_str();
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  lock hold(the().mutex);
  if (const auto code = enter("ncclCommGetAsyncError", hold)) return code;
  const auto of = find(comm);
  if (!of || error == nullptr) return ncclInvalidArgument;
  *error = static_cast<ncclResult_t>(of->state.load());
  return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  return ask("ncclCommCount", comm, count, [](const communicator& of) { return of.ranks; });
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  return ask("ncclCommCuDevice", comm, device, [](const communicator& of) { return of.device; });
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  return ask("ncclCommUserRank", comm, rank, [](const communicator& of) { return of.rank; });
}

ncclResult_t ncclMemAlloc(void** memory, size_t bytes) {
  {
    lock hold(the().mutex);
    if (const auto code = enter("ncclMemAlloc", hold)) return code;
  }
  return cudaMalloc(memory, bytes) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclMemFree(void* memory) {
  {
    lock hold(the().mutex);
    if (const auto code = enter("ncclMemFree", hold)) return code;
    for (const auto& [handle, each] : the().registered) {
      const auto of = each.of.lock();
      if (each.memory == memory && of && !of->gone) {
        internal::fault("ncclMemFree of memory that is registered for " + of->name);
      }
    }
  }
  return cudaFree(memory) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void* memory, size_t bytes, void** handle) {
  lock hold(the().mutex);
  if (const auto code = enter("ncclCommRegister", hold)) return code;
  const auto of = find(comm);
  if (!of || memory == nullptr || bytes == 0 || handle == nullptr) return ncclInvalidArgument;
  check_order("ncclCommRegister", of->device);
  if (const auto code = ensure_ready(*of)) return code;
  if (!device_idle(of->device)) {
    internal::fault("ncclCommRegister with a collective on the device, which it may wait for");
  }
  *handle = reinterpret_cast<void*>(++the().handles);
  the().registered[*handle] = {of, static_cast<const char*>(memory), bytes};
  ++of->registrations;
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle) {
  lock hold(the().mutex);
  if (const auto code = enter("ncclCommDeregister", hold)) return code;
  const auto of = find(comm);
  if (!of || the().registered.erase(handle) == 0) return ncclInvalidArgument;
  --of->registrations;
  return ncclSuccess;
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                      ncclScalarResidence_t residence, ncclComm_t comm) {
  lock hold(the().mutex);
  if (const auto code = enter("ncclRedOpCreatePreMulSum", hold)) return code;
  const auto of = find(comm);
  if (!of || op == nullptr || scalar == nullptr || size_of(type) == 0) return ncclInvalidArgument;
  if (const auto code = ensure_ready(*of)) return code;
  premultiplied made;
  made.used = true;
  made.type = type;
  if (residence == ncclScalarDevice) {
    made.on_device = scalar;
  } else {
    std::memcpy(made.scalar.data(), scalar, size_of(type));
  }
  auto& all = of->factors;
  auto place = std::find_if(all.begin(), all.end(), [](const auto& one) { return !one.used; });
  if (place == all.end()) place = all.insert(place, premultiplied());
  *place = made;
  *op = static_cast<ncclRedOp_t>(ncclNumOps + int(place - all.begin()));
  return ncclSuccess;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  lock hold(the().mutex);
  if (const auto code = enter("ncclRedOpDestroy", hold)) return code;
  const auto of = find(comm);
  const int which = int(op) - int(ncclNumOps);
  if (!of || which < 0 || which >= int(of->factors.size()) ||
      !of->factors[static_cast<std::size_t>(which)].used) {
    return fail(ncclInvalidArgument, "ncclRedOpDestroy: not an operation of this communicator");
  }
  of->factors[static_cast<std::size_t>(which)].used = false;
  return ncclSuccess;
}

ncclResult_t ncclReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return collective("ncclReduce", verb::reduce, from, to, count, type, comm, stream, root, op);
}

ncclResult_t ncclBcast(void* buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                       cudaStream_t stream) {
  return collective("ncclBcast", verb::broadcast, buffer, buffer, count, type, comm, stream, root);
}

ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return collective("ncclBroadcast", verb::broadcast, from, to, count, type, comm, stream, root);
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return collective("ncclAllReduce", verb::all_reduce, from, to, count, type, comm, stream, 0, op);
}

ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count_each, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return collective("ncclReduceScatter", verb::reduce_scatter, from, to, count_each, type, comm,
                    stream, 0, op);
}

ncclResult_t ncclAllGather(const void* from, void* to, size_t count_each, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return collective("ncclAllGather", verb::all_gather, from, to, count_each, type, comm, stream);
}

ncclResult_t ncclAlltoAll(const void* from, void* to, size_t count, ncclDataType_t type,
                          ncclComm_t comm, cudaStream_t stream) {
  return collective("ncclAlltoAll", verb::all_to_all, from, to, count, type, comm, stream);
}

ncclResult_t ncclGather(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return collective("ncclGather", verb::gather, from, to, count, type, comm, stream, root);
}

ncclResult_t ncclScatter(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                         ncclComm_t comm, cudaStream_t stream) {
  return collective("ncclScatter", verb::scatter, from, to, count, type, comm, stream, root);
}

ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return collective("ncclSend", verb::send, from, nullptr, count, type, comm, stream, peer);
}

ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return collective("ncclRecv", verb::receive, nullptr, to, count, type, comm, stream, peer);
}

ncclResult_t ncclGroupStart() {
  lock hold(the().mutex);
  if (const auto code = enter("ncclGroupStart", hold)) return code;
  ++group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  lock hold(the().mutex);
  if (const auto code = enter("ncclGroupEnd", hold)) {
    group = group_of_thread();
    return code;
  }
  if (group.depth == 0) return fail(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  return end_group(hold);
}

}  // extern "C"
