// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file `cohort::cluster::serve`: what a process does that a manager has started.

#include <cohort/cluster/call_context.hpp>
#include <cohort/cluster/connect.hpp>
#include <cohort/cluster/error.hpp>
#include <cohort/cluster/event.hpp>
#include <cohort/cluster/function.hpp>
#include <cohort/cluster/message.hpp>
#include <cohort/cluster/watch.hpp>
#include <cohort/core/host.hpp>
#include <cohort/core/log.hpp>
#include <cohort/mpi/environment.hpp>

#include <asio/thread_pool.hpp>

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace cohort::cluster {

/// The first line of main. In a process that `cluster::launch` has started: connects to the
/// manager, starts MPI, serves calls until the manager shuts down, finalizes MPI if it started it,
/// and returns true; main can go on with something of its own or return. In any other process: does
/// nothing and returns false.
///
/// The process leaves (status 1) when the manager is lost, also in the middle of a call.
/// *Errors*: throws cohort::error(errc::refused) if no manager can be reached or the manager does
/// not take this worker, with the reason; errors of MPI.
bool serve(int& argc, char**& argv);

/// What `launch` has put into a worker's environment.
struct worker_start {
  launch_token token{};
  std::vector<asio::ip::tcp::endpoint> managers;

  /// Takes it out of the environment, so that no child of this process has it. Nothing if it is
  /// not there; throws errc::invalid_argument if it makes no sense.
  [[nodiscard]] static std::optional<worker_start> take_from_environment();
};

/// One worker. Used by the thread that runs the context.
class worker {
 public:
  worker(asio::io_context& io, worker_start start)
      : io_(io), start_(std::move(start)), changed_(io) {}
  worker(const worker&) = delete;
  worker& operator=(const worker&) = delete;

  /// Connects, shows which program this is, and redirects stdout and stderr. Blocks.
  void join();
  /// Serves calls until the manager says that no more come. Blocks.
  void serve(const communicator& world);
  /// The connection that tells the manager, by its end, that this process is done.
  [[nodiscard]] int last_sign();

 private:
  struct running {
    running(asio::io_context& io, const communicator& world, int rank, int size,
            std::optional<call_context::clock::time_point> deadline)
        : context(io, world, rank, size, deadline) {}

    call_context context;
    asio::cancellation_signal cancel;
    runner* function = nullptr;
    std::vector<std::byte> arguments;
    std::uint64_t id = 0;
    call_tail tail;
    bool begun = false;
  };
  using running_ptr = std::shared_ptr<running>;

  asio::awaitable<void> introduce();
  asio::awaitable<void> redirect(int descriptor, purpose what);
  void received(message&& each);
  void handle(message&& each);
  void called(message&& each);
  void begin(const running_ptr& call);
  void begin_ordered();
  void ended(const running_ptr& call, std::exception_ptr failed, std::vector<std::byte>&& result);
  void cancel(std::uint64_t id);
  void answer(std::uint64_t id, std::vector<std::byte>&& result);
  void answer_error(std::uint64_t id, const std::exception_ptr& failed);
  void leave_if_idle();
  [[noreturn]] static void manager_lost();
  static asio::awaitable<std::vector<std::byte>> execute(running_ptr call);

  asio::io_context& io_;
  worker_start start_;
  event changed_;
  greeting hello_;
  std::shared_ptr<link> control_;
  std::optional<manager_watch> watch_;
  communicator world_;
  int rank_ = -1;
  int size_ = 0;
  bool welcome_ = false;
  std::string refused_;
  std::unordered_map<std::uint64_t, running_ptr> running_;
  std::map<std::uint64_t, running_ptr> ordered_;  // by place; null: it has been cancelled
  std::uint64_t next_ordered_ = 0;
  bool ordered_runs_ = false;
  std::optional<asio::thread_pool> threads_;
  std::optional<std::uint64_t> announced_;  // messages that the manager has sent before the last
  bool seen_all_ = false;
  bool done_ = false;
};

// ---- implementation --------------------------------------------------------------------------

namespace detail {

[[nodiscard]] inline std::vector<std::byte> encoded_table() {
  std::vector<std::byte> bytes;
  wire::writer out(bytes);
  const auto entries = function_table::instance().entries();
  out.varint(entries.size());
  for (const function_table::entry& each : entries) out.put(each);
  return bytes;
}

/// The rank that the launcher has put into the environment; -1 if it is not known.
inline int rank_in_environment() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    const char* const text = std::getenv(name);
    if (text != nullptr) return std::atoi(text);
  }
  return -1;
}

}  // namespace detail

inline std::optional<worker_start> worker_start::take_from_environment() {
  const char* const token = std::getenv(token_variable);
  const char* const managers = std::getenv(manager_variable);
  if (token == nullptr || managers == nullptr) return std::nullopt;
  worker_start start;
  const bool fine = parse_token(token, start.token);
  std::string_view rest = managers;
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    if (const auto where = parse_endpoint(rest.substr(0, comma))) start.managers.push_back(*where);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  const std::string addresses = managers;
  ::unsetenv(token_variable);
  ::unsetenv(manager_variable);
  if (!fine) throw error(errc::invalid_argument, std::string(token_variable) + " is no token");
  if (start.managers.empty()) {
    throw error(errc::invalid_argument,
                std::string(manager_variable) + "=" + addresses + " has no address");
  }
  return start;
}

inline void worker::join() {
  hello_.session = random_bytes<session_size>();
  std::exception_ptr failed;
  asio::co_spawn(io_, introduce(), [&](std::exception_ptr problem) {
    failed = std::move(problem);
    io_.stop();
  });
  io_.run();
  io_.restart();
  if (failed) std::rethrow_exception(failed);
}

inline asio::awaitable<void> worker::introduce() {
  hello_.purpose = purpose::control;
  auto connecting = connect(io_, start_.managers, start_.token, hello_);
  tcp_socket socket = co_await std::move(connecting);
  // The manager has looked at the size of what it sends.
  control_ = std::make_shared<link>(std::move(socket), std::numeric_limits<std::size_t>::max());
  watch_.emplace(control_->native_handle(), [] { manager_lost(); });
  control_->start([this](message&& each) { received(std::move(each)); },
                  [this](std::error_code) {
                    if (!done_) manager_lost();
                  });
  identity self;
  self.program = program_id();
  self.table = function_table::instance().digest();
  self.host = process::host_name();
  self.pid = ::getpid();
  self.rank = detail::rank_in_environment();
  control_->send(message_kind::identity, 0, wire::encode(self));
  while (!welcome_ && refused_.empty()) co_await changed_.wait();
  if (!refused_.empty()) throw error(errc::refused, refused_);
  co_await redirect(STDOUT_FILENO, purpose::standard_output);
  co_await redirect(STDERR_FILENO, purpose::standard_error);
}

// The other end is a socket in another process, so what has been written is safe there even if this
// process is killed.
inline asio::awaitable<void> worker::redirect(int descriptor, purpose what) {
  greeting hello = hello_;
  hello.purpose = what;
  auto connecting = connect(io_, start_.managers, start_.token, hello);
  tcp_socket socket = co_await std::move(connecting);
  const int native = socket.native_handle();
  ::fcntl(native, F_SETFL, ::fcntl(native, F_GETFL) & ~O_NONBLOCK);
  std::FILE* const stream = descriptor == STDOUT_FILENO ? stdout : stderr;
  std::fflush(stream);
  if (::dup2(native, descriptor) < 0) {
    throw std::system_error(errno, std::generic_category(), "dup2");
  }
  if (stream == stdout) std::setvbuf(stream, nullptr, _IOLBF, 0);
}

inline void worker::received(message&& each) {
  const bool counts = each.kind != message_kind::heartbeat;
  handle(std::move(each));
  // Large messages may come after the number; this message is counted when this function returns.
  if (!announced_ || !counts) return;
  seen_all_ = control_->received() >= *announced_;
  leave_if_idle();
}

inline void worker::handle(message&& each) {
  switch (each.kind) {
    case message_kind::welcome:
      welcome_ = true;
      changed_.notify();
      return;
    case message_kind::refused: {
      wire::reader in(each.bytes);
      refused_ = "the manager refuses this worker: " + std::string(in.text());
      changed_.notify();
      return;
    }
    case message_kind::ask_table:
      control_->send(message_kind::table, 0, detail::encoded_table());
      return;
    case message_kind::call:
      called(std::move(each));
      return;
    case message_kind::cancel:
      cancel(each.id);
      return;
    case message_kind::finish: {
      wire::reader in(each.bytes);
      announced_ = in.varint();
      return;
    }
    default:
      return;  // of a later version, or nothing to do
  }
}

inline void worker::serve(const communicator& world) {
  world_ = world;
  rank_ = world.rank();
  size_ = world.size();
  control_->send(message_kind::started, 0, wire::encode(started{rank_, size_}));
  io_.run();
  world_ = communicator();
  threads_.reset();
  watch_.reset();
}

inline int worker::last_sign() { return ::fcntl(control_->native_handle(), F_DUPFD_CLOEXEC, 0); }

inline void worker::called(message&& each) {
  if (each.oversize) {
    return answer_error(each.id, std::make_exception_ptr(
                                     error(errc::message_too_long, "arguments above max_message")));
  }
  const auto tail = call_tail::take_from(each.bytes);
  const auto& table = function_table::instance();
  if (!tail || tail->function >= table.size()) {
    return answer_error(each.id, std::make_exception_ptr(
                                     error(errc::unknown_function,
                                           tail ? "no function " + std::to_string(tail->function) +
                                                      " of " + std::to_string(table.size())
                                                : std::string("a call without a function"))));
  }
  std::optional<call_context::clock::time_point> deadline;
  if ((tail->flags & call_tail::limited) != 0) {
    constexpr std::uint64_t most = std::uint64_t{1} << 61U;
    deadline =
        call_context::clock::now() + std::chrono::nanoseconds(std::min(tail->remaining, most));
  }
  auto call = std::make_shared<running>(io_, world_, rank_, size_, deadline);
  call->function = table.at<runner>(tail->function);
  call->arguments = std::move(each.bytes);
  call->id = each.id;
  call->tail = *tail;
  if (!running_.emplace(each.id, call).second) {
    return answer_error(each.id, std::make_exception_ptr(
                                     error(errc::invalid_argument, "the id of a running call")));
  }
  if ((tail->flags & call_tail::ordered) == 0) return begin(call);
  ordered_.emplace(call->tail.order, call);
  begin_ordered();
}

// Large calls may arrive after small ones that were made later.
inline void worker::begin_ordered() {
  for (auto next = ordered_.find(next_ordered_); !ordered_runs_ && next != ordered_.end();
       next = ordered_.find(next_ordered_)) {
    const running_ptr call = std::move(next->second);
    ordered_.erase(next);
    ++next_ordered_;
    if (!call) continue;
    ordered_runs_ = true;
    begin(call);
  }
}

inline asio::awaitable<std::vector<std::byte>> worker::execute(running_ptr call) {
  co_await asio::this_coro::reset_cancellation_state(asio::enable_total_cancellation());
  auto body = call->function(call->context, std::move(call->arguments));
  co_return co_await std::move(body);
}

inline void worker::begin(const running_ptr& call) {
  call->begun = true;
  auto done = [this, call](std::exception_ptr failed, std::vector<std::byte> result) {
    ended(call, std::move(failed), std::move(result));
  };
  if ((call->tail.flags & call_tail::on_thread) != 0) {
    if (!threads_) threads_.emplace(4);
    asio::co_spawn(threads_->get_executor(), execute(call),
                   asio::bind_executor(io_.get_executor(), std::move(done)));
  } else {
    asio::co_spawn(io_, execute(call),
                   asio::bind_cancellation_slot(call->cancel.slot(), std::move(done)));
  }
}

inline void worker::ended(const running_ptr& call, std::exception_ptr failed,
                          std::vector<std::byte>&& result) {
  running_.erase(call->id);
  if (failed) {
    answer_error(call->id, failed);
  } else if ((call->tail.flags & call_tail::one_way) == 0) {
    answer(call->id, std::move(result));
  }
  if ((call->tail.flags & call_tail::ordered) != 0) {
    ordered_runs_ = false;
    begin_ordered();
  }
  leave_if_idle();
}

inline void worker::cancel(std::uint64_t id) {
  const auto at = running_.find(id);
  if (at == running_.end()) return;
  const running_ptr call = at->second;
  call->context.cancel();
  if (call->begun) {
    call->cancel.emit(asio::cancellation_type::total);
    return;
  }
  running_.erase(at);
  ordered_[call->tail.order] = nullptr;
  begin_ordered();
  answer_error(id, std::make_exception_ptr(std::system_error(asio::error::operation_aborted)));
  leave_if_idle();
}

inline void worker::answer(std::uint64_t id, std::vector<std::byte>&& result) {
  control_->send(message_kind::result, id, std::move(result));
}

inline void worker::answer_error(std::uint64_t id, const std::exception_ptr& failed) {
  std::vector<std::byte> bytes;
  wire::writer out(bytes);
  encode_exception(out, failed, rank_, process::host_name());
  control_->send(message_kind::failure, id, std::move(bytes));
}

inline void worker::leave_if_idle() {
  if (!seen_all_ || !running_.empty() || done_) return;
  std::vector<std::byte> bytes;
  wire::writer out(bytes);
  out.put(control_->received() >= *announced_);
  out.varint(control_->sent());
  done_ = true;
  control_->send(message_kind::finished, 0, std::move(bytes));
  control_->when_flushed([this] { io_.stop(); });
}

inline void worker::manager_lost() {
  const int rank = process::rank.load(std::memory_order_relaxed);
  const std::string text = "cohort: worker " +
                           (rank < 0 ? std::string("?") : std::to_string(rank)) +
                           ": the manager is gone, so this process leaves\n";
  // Standard error may be a connection to that manager: a closed one must not kill us first.
  if (::send(STDERR_FILENO, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0 &&
      errno == ENOTSOCK) {
    static_cast<void>(!::write(STDERR_FILENO, text.data(), text.size()));
  }
  ::_exit(1);
}

inline bool serve(int& argc, char**& argv) {
  auto start = worker_start::take_from_environment();
  if (!start) return false;
  std::optional<environment> mpi;
  int last_sign = -1;
  {
    asio::io_context io;
    worker self(io, *std::move(start));
    self.join();
    mpi.emplace(argc, argv);
    {
      const communicator world(io);
      self.serve(world);
    }
    last_sign = self.last_sign();
  }
  mpi.reset();
  std::fflush(stdout);
  if (last_sign >= 0) ::close(last_sign);
  return true;
}

}  // namespace cohort::cluster
