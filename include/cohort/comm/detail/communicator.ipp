// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The operations that make a communicator from another.

#include <array>
#include <memory>

namespace cohort::comm {

/// A communicator that does not exist yet: the ranks meet in a barrier, then make it.
template <class Make>
struct make_communicator_body {
  using signature = void(std::error_code, communicator);
  // Who leaves after the barrier would let the others wait in MPI for ever.
  static constexpr cancels cancellation = cancels::never;

  [[nodiscard]] errc check(const communicator_state&) const noexcept { return {}; }
  void explain(failure_text&) const {}
  [[nodiscard]] std::size_t bytes() const noexcept { return 0; }
  int post(poster& post) const {
    MPI_Request request = MPI_REQUEST_NULL;
    return post.add(MPI_Ibarrier(post.exchange(), &request), request);
  }
  template <class Handler>
  void finish(Handler&& handler, std::error_code error, const outcome_of_requests&) {
    communicator made;
    if (!error) {
      try {
        mpi::comm data = make(static_cast<const mpi::comm_ref&>(parent.state()->data));
        if (data) {
          mpi::comm exchange = data.dup();
          made = communicator::adopt(parent, std::move(data), std::move(exchange));
        }
      } catch (const std::system_error& problem) {
        error = problem.code();
      }
    }
    std::forward<Handler>(handler)(error, std::move(made));
  }

  static constexpr const char* name = Make::name;
  communicator parent;
  Make make;
};

struct make_split {
  static constexpr const char* name = "split";
  int color;
  int key;
  mpi::comm operator()(const mpi::comm_ref& parent) const { return parent.split(color, key); }
};

struct make_split_node {
  static constexpr const char* name = "split_node";
  mpi::comm operator()(const mpi::comm_ref& parent) const { return parent.split_node(); }
};

template <topology Topology>
struct make_topology {
  static constexpr const char* name = "create";
  Topology shape;
  mpi::comm operator()(const mpi::comm_ref& parent) const { return shape.create(parent); }
};

/// MPI can duplicate without blocking.
struct dup_body {
  using signature = void(std::error_code, communicator);
  static constexpr const char* name = "dup";
  static constexpr cancels cancellation = cancels::never;

  [[nodiscard]] errc check(const communicator_state&) const noexcept { return {}; }
  void explain(failure_text&) const {}
  [[nodiscard]] std::size_t bytes() const noexcept { return 0; }
  int post(poster& post) {
    made = std::make_unique<std::array<MPI_Comm, 2>>();
    MPI_Request request = MPI_REQUEST_NULL;
    const int rc = post.add(MPI_Comm_idup(post.native(), made->data(), &request), request);
    if (rc != MPI_SUCCESS) return rc;
    return post.add(MPI_Comm_idup(post.exchange(), made->data() + 1, &request), request);
  }
  template <class Handler>
  void finish(Handler&& handler, std::error_code error, const outcome_of_requests&) {
    communicator result;
    if (!error) {
      result =
          communicator::adopt(parent, mpi::comm::adopt((*made)[0]), mpi::comm::adopt((*made)[1]));
    }
    std::forward<Handler>(handler)(error, std::move(result));
  }

  communicator parent;
  std::unique_ptr<std::array<MPI_Comm, 2>> made;  // MPI writes here while the body moves
};

}  // namespace cohort::comm

namespace cohort {

template <completion_token_for<void(std::error_code, communicator)> Token>
auto communicator::dup(Token&& token) const {
  return comm::initiate(*this, comm::dup_body{*this, nullptr}, token);
}

template <completion_token_for<void(std::error_code, communicator)> Token>
auto communicator::split(int color, int key, Token&& token) const {
  comm::make_communicator_body<comm::make_split> body{*this, comm::make_split{color, key}};
  return comm::initiate(*this, std::move(body), token);
}

template <comm::topology Topology, completion_token_for<void(std::error_code, communicator)> Token>
auto communicator::create(const Topology& topology, Token&& token) const {
  using make = comm::make_topology<Topology>;
  comm::make_communicator_body<make> body{*this, make{topology}};
  return comm::initiate(*this, std::move(body), token);
}

template <completion_token_for<void(std::error_code, communicator)> Token>
auto communicator::split_node(Token&& token) const {
  comm::make_communicator_body<comm::make_split_node> body{*this, comm::make_split_node{}};
  return comm::initiate(*this, std::move(body), token);
}

}  // namespace cohort
