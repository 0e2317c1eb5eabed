// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Messages between devices, alone and in groups that are posted by one call.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/nccl/datatype.hpp>
#include <cohort/nccl/operation.hpp>

namespace cohort::nccl {

/// Several messages that are posted together, so that their order among the ranks does not matter.
///
/// `co_await nccl::group(gpus, stream).send(a, 1).recv(b, 1).run();` A message of nothing is left
/// out, so it must be of nothing on both sides. Buffers are borrowed; a device::vector may go
/// before the group has ended. What NCCL allows once only in a group, more than one message for a
/// pair of ranks, is matched in the order of the calls.
class group {
 public:
  group(const communicator& comm, const device::stream& on)
      : asked_(detail::request_for(comm.state(), on, "group", call::kind::barrier)) {
    asked_.everybody = false;
  }

  template <device_buffer B>
  group& send(B&& buffer, int to) & {
    add(call::kind::send, buffer, to);
    return *this;
  }
  template <writable_buffer B>
  group& recv(B&& buffer, int from) & {
    add(call::kind::recv, buffer, from);
    return *this;
  }
  template <device_buffer B>
  group&& send(B&& buffer, int to) && {
    add(call::kind::send, buffer, to);
    return std::move(*this);
  }
  template <writable_buffer B>
  group&& recv(B&& buffer, int from) && {
    add(call::kind::recv, buffer, from);
    return std::move(*this);
  }

  /// Posts them, once. Takes what every verb takes at its end.
  template <class... Tail>
  requires detail::tail_for<void(std::error_code), Tail...>
  auto run(Tail&&... tail) {
    request asked = std::move(asked_);
    // Nothing to post is an operation of nothing, not a barrier.
    if (asked.more.empty()) asked.one.what = call::kind::send;
    return detail::initiate<void(std::error_code)>(std::move(asked), std::tuple<>(),
                                                   std::forward<Tail>(tail)...);
  }

 private:
  template <class B>
  void add(call::kind what, B& buffer, int peer) {
    using T = element_of<B>;
    request one = detail::request_for(asked_.comm, *asked_.user, "group", what, peer);
    if (one.bad != errc{}) asked_.refuse(one.bad, one.facts);
    detail::count_as(one, moved_as<T>(), buffer.size(), sizeof(T));
    if (what == call::kind::send) {
      one.one.from = buffer.data();
    } else {
      // A group writes no output.
      one.one.to = const_cast<void*>(static_cast<const void*>(buffer.data()));
    }
    asked_.more.push_back(one.one);
    asked_.bytes += buffer.bytes();
    asked_.uses.push_back(detail::use_of(what == call::kind::send ? "send" : "recv", buffer));
  }
  request asked_;
};

}  // namespace cohort::nccl

#endif
