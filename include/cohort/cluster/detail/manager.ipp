// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Bodies of manager.hpp: launch, messages, the end.

#include <cohort/cluster/invitation.hpp>
#include <cohort/cluster/local_link.hpp>
#include <cohort/cluster/manager.hpp>
#include <cohort/core/function_table.hpp>
#include <cohort/core/host.hpp>
#include <cohort/core/log.hpp>
#include <cohort/core/process.hpp>
#include <cohort/core/wire.hpp>

#include <algorithm>

namespace cohort::cluster {

COHORT_INLINE std::string_view to_text(worker_state state) noexcept {
  switch (state) {
    case worker_state::starting:
      return "starting";
    case worker_state::ready:
      return "ready";
    case worker_state::draining:
      return "draining";
    case worker_state::stuck:
      return "stuck";
    case worker_state::lost:
      return "lost";
    case worker_state::gone:
      return "gone";
  }
  return "?";
}

namespace detail {

/// "ranks 0, 2, 5"; "rank 3".
[[nodiscard]] COHORT_INLINE std::string rank_list(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    text += i == 0 ? " " : ", ";
    if (i == 32) return text + "… (" + std::to_string(ranks.size()) + " in all)";
    text += std::to_string(ranks[i]);
  }
  return text;
}

}  // namespace detail

// ---- launch ----------------------------------------------------------------------------------

template <class Any>
basic_manager<Any>::basic_manager(asio::io_context& io, launch_options options)
    : io_(io), options_(std::move(options)), changed_(io), events_changed_(io) {
  calls_ = std::make_shared<call_client>(
      io, options_.max_message(),
      [this](int rank, const std::string& text) { return route(rank, text); });
  calls_->on_idle([this] {
    if (closing_) changed_.notify();
  });
}

template <class Any>
asio::awaitable<void> basic_manager<Any>::launch() {
  if (launched_) throw error(errc::manager_reused, "launch: this manager has been used before");
  launched_ = true;
  validate(options_);
  if (options_.transport() != transport::tcp) {
    throw error(errc::not_supported,
                "launch: the control messages of workers that are launched "
                "travel over TCP; MPI is for jobs that mpirun has started");
  }
  check_policy();
  const auto limit = from_now(options_.timeout());
  if (options_.ranks() == 0) {
    ready_ = true;
    ended_ = false;
    co_return;
  }
  const auto self = this->shared_from_this();
  begin();
  output_ = std::make_shared<output_queue>(
      options_.sinks().empty() ? std::vector<output_sink>{console()} : options_.sinks(),
      options_.output_bound(), options_.overflow());
  listen();
  if (options_.by_hand()) {
    options_.by_hand()(reception_->addresses(), to_text(token_));
    reception_->open();
    run_beside(io_, keep_until_end(), [self](std::exception_ptr) {});
  } else {
    auto starting = start_launcher();
    co_await std::move(starting);
  }
  std::exception_ptr interrupted;
  try {
    auto waiting = wait_until_ready(limit);
    co_await std::move(waiting);
  } catch (...) {
    interrupted = std::current_exception();
  }
  if (ready_) co_return;
  stop_listening();
  if (interrupted) {
    problem_ = "cancelled";
    terminate("the launch was cancelled");
    std::rethrow_exception(interrupted);
  }
  auto cleaning = clean_up_launch();
  co_await std::move(cleaning);
  std::string text = "launch of " + std::to_string(options_.ranks()) + " ranks: " + problem_;
  throw error(problem_code_, text + words_of_launcher());
}

/// For the text of an error. Without a sink of the user's they have been printed already.
template <class Any>
std::string basic_manager<Any>::words_of_launcher() const {
  const std::string printed = child_ ? child_->output() : std::string();
  if (printed.empty()) return printed;
  if (options_.sinks().empty()) return "; what the launcher printed stands above";
  return "\nthe launcher printed:\n" + printed;
}

template <class Any>
asio::awaitable<void> basic_manager<Any>::start_launcher() {
  const auto self = this->shared_from_this();
  launch_options started_with = options_;
  started_with.environment(token_variable, to_text(token_));
  started_with.environment(manager_variable, reception_->addresses());
  auto preparing = prepare_launch(std::move(started_with));
  const launch_command command = co_await std::move(preparing);
  child_options how;
  how.grace = options_.grace();
  how.longest_line = options_.longest_line();
  how.on_line = [output = output_](const output_line& line) { output->push(line); };
  if (!problem_.empty()) co_return;  // in the meantime
  const auto made = std::make_shared<child_process>(io_.get_executor(), command, how);
  child_ = made;
  exited_.reset();
  watches_child_ = true;
  reception_->open();
  run_beside(io_, watch_child(), [self](std::exception_ptr) {});
}

template <class Any>
void basic_manager<Any>::check_policy() const {
  if (options_.on_loss() != loss_policy::respawn) return;
  if (adopted_ || options_.by_hand()) {
    throw error(errc::not_supported,
                "on_loss: respawn: this manager has not started the job, so it cannot do so again");
  }
}

template <class Any>
void basic_manager<Any>::begin() {
  begun_.assign(static_cast<std::size_t>(options_.ranks()), nullptr);
  heartbeat_ = options_.heartbeat().value_or(std::chrono::seconds(5));
  machine_ = process::host_id();
  token_ = random_bytes<std::tuple_size_v<launch_token>>();
  if (options_.serve_calls()) run_calls_here();
}

template <class Any>
asio::awaitable<void> basic_manager<Any>::wait_until_ready(clock::time_point limit) {
  while (!ready_ && problem_.empty()) {
    const bool in_time = co_await changed_.wait_until(limit);
    if (!in_time) fail_launch(errc::deadline_exceeded, "the time is over; " + missing());
  }
}

template <class Any>
asio::awaitable<void> basic_manager<Any>::adopt(communicator world) {
  if (launched_) throw error(errc::manager_reused, "adopt: this manager has been used before");
  if (world.rank() != 0) {
    throw error(errc::invalid_argument, "adopt: rank " + std::to_string(world.rank()) +
                                            " is a worker, it calls serve; rank 0 adopts");
  }
  launched_ = true;
  adopted_ = true;
  first_ = 1;
  validate(options_);
  check_policy();
  const auto limit = from_now(options_.timeout());
  const auto self = this->shared_from_this();
  if (options_.ranks() == 0) {
    auto making = make_communicators(world);
    const adopted_communicators made = co_await std::move(making);
    run_calls_here();
    call_place alone;
    alone.id = 0;
    alone.everyone = made.everyone;
    server_->place(std::move(alone));
    ready_ = true;
    ended_ = false;
    co_return;
  }
  begin();
  invitation what;
  what.over_mpi = options_.transport() == transport::mpi;
  what.capture = !options_.sinks().empty();
  what.token = token_;
  if (what.capture) {
    output_ = std::make_shared<output_queue>(options_.sinks(), options_.output_bound(),
                                             options_.overflow());
  }
  const bool needs_tcp = what.capture || !what.over_mpi;
  if (needs_tcp || heartbeat_ > heartbeat_.zero()) {
    try {
      listen();
    } catch (const error& failed) {
      if (needs_tcp || options_.heartbeat() || failed.code() != errc::launch_failed) throw;
      heartbeat_ = heartbeat_.zero();
      log::write(log::level::warning, std::string("no heartbeats: ") + failed.what());
    }
  }
  if (reception_) {
    what.addresses = reception_->addresses();
    reception_->open();
  }
  std::exception_ptr failed;
  try {
    auto gathering = gather_workers(world, what, limit);
    co_await std::move(gathering);
    auto making = make_communicators(world);
    const adopted_communicators made = co_await std::move(making);
    co_await asio::this_coro::throw_if_cancelled(true);  // see gather_workers
    run_calls_here();
    call_place place;
    place.id = 0;
    place.everyone = made.everyone;
    server_->place(std::move(place));
    control_ = made.control;
    if (what.over_mpi) {
      transport_ = std::make_shared<mpi_transport>(made.control, options_.max_message());
      for (int rank = first_; rank < first_ + size(); ++rank) {
        join(transport_->to(rank))->over_tcp = false;
      }
      transport_->start(nullptr);
    }
    auto waiting = wait_until_ready(limit);
    co_await std::move(waiting);
  } catch (...) {
    failed = std::current_exception();
  }
  if (ready_ && !failed) {
    run_beside(io_, keep_until_end(), [self](std::exception_ptr) {});
    co_return;
  }
  stop_listening();
  if (!failed) {
    failed = std::make_exception_ptr(error(
        problem_code_, "adoption of " + std::to_string(options_.ranks()) + " ranks: " + problem_));
  }
  if (problem_.empty()) problem_ = "cancelled";
  let_go("the adoption has failed: " + problem_);
  std::rethrow_exception(failed);
}

/// As long as there are workers the loop has something to do; when it is destroyed, who waits for
/// calls is let go of.
template <class Any>
asio::awaitable<void> basic_manager<Any>::keep_until_end() {
  loop_guard guard(this->shared_from_this());
  while (!ended_ || (!ready_ && problem_.empty())) co_await changed_.wait();
  guard.release();
}

/// The workers of an adopted job go on in their own code.
template <class Any>
void basic_manager<Any>::let_go(const std::string& why) {
  for (const member_ptr& each : joined_) {
    if (each->state == worker_state::lost || each->state == worker_state::gone) continue;
    each->state = worker_state::gone;
    part_from(each, why);
  }
  calls_->give_up_all([&](std::string_view name, int rank) {
    return std::make_exception_ptr(peer_lost_error(
        {rank}, "call of " + std::string(name) + ": rank " + std::to_string(rank) + ": " + why));
  });
  if (transport_) {
    // Workers may be sending something until they have read it; one may be inside a function.
    const std::chrono::seconds linger(ready_ ? 30 : 2);
    run_beside(io_, transport_->stop(std::chrono::seconds(2), linger),
               [kept = transport_](std::exception_ptr) {});
  }
  changed_.notify();
  events_changed_.notify();
}

/// Closes the connections to a worker that may live, and tells it why.
template <class Any>
void basic_manager<Any>::part_from(const member_ptr& whom, const std::string& why) {
  std::vector<std::byte> bytes;
  wire::writer(bytes).text(why);
  whom->control->send_last(message_kind::refused, std::move(bytes));
  whom->close_life();
  run_beside(io_, leave(whom->control, whom->over_tcp), [](std::exception_ptr) {});
}

/// Closes a connection after what has been sent. The other side closes it as soon as it has read
/// that; whoever closed first while something is unread would destroy it.
template <class Any>
asio::awaitable<void> basic_manager<Any>::leave(std::shared_ptr<link> control, bool over_tcp) {
  if (over_tcp) {
    const auto limit = from_now(std::chrono::seconds(1));
    while (!control->ended() && clock::now() < limit) {
      asio::steady_timer pause(co_await asio::this_coro::executor, std::chrono::milliseconds(5));
      co_await pause.async_wait(awaiting<Any>);
    }
    control->close();
  } else {
    control->when_flushed([weak = std::weak_ptr(control)] {
      if (const auto here = weak.lock()) here->close();
    });
  }
}

/// Functions can be called in this process: by workers, and by itself.
template <class Any>
void basic_manager<Any>::run_calls_here() {
  if (server_) return;
  server_ = std::make_shared<call_server>(io_);
  server_->on_idle([self = this->weak_from_this()] {
    if (const auto here = self.lock()) here->changed_.notify();
  });
  call_place place;
  place.id = manager_id;
  server_->place(std::move(place));
  const auto [near, far] = local_link::pair(io_, options_.max_message());
  here_ = std::make_shared<member>();
  here_->control = near;
  here_->far = far;
  here_->rank = 0;
  here_->state = worker_state::ready;
  near->start(
      [self = this->weak_from_this()](message&& each) {
        const auto here = self.lock();
        if (!here) return;
        if (each.kind == message_kind::used) {
          wire::reader in(each.bytes);
          here->here_->used[each.id] = in.get<communicator_use>();
        } else {
          static_cast<void>(here->calls_->answered(0, std::move(each)));
          here->changed_.notify();
        }
      },
      [](std::error_code) {});
  far->start(
      [self = this->weak_from_this()](message&& each) {
        const auto here = self.lock();
        if (here) here->called(here->here_->far, std::move(each));
      },
      [](std::error_code) {});
}

template <class Any>
void basic_manager<Any>::called(const std::shared_ptr<link>& from, message&& each) {
  if (each.kind == message_kind::cancel) return server_->cancel(from, each.id);
  server_->called(from, std::move(each));
}

template <class Any>
typename basic_manager<Any>::member_ptr basic_manager<Any>::join(std::shared_ptr<link> control) {
  const auto made = std::make_shared<member>();
  made->control = std::move(control);
  joined_.push_back(made);
  // Weak, since the member owns the link: if the loop is destroyed nothing else breaks the ring.
  const std::weak_ptr<manager> self = this->weak_from_this();
  const std::weak_ptr<member> weak = made;
  made->control->start(
      [self, weak](message&& each) {
        const auto here = self.lock();
        if (const auto from = weak.lock(); here && from) here->received(from, std::move(each));
      },
      [self, weak](std::error_code why) {
        const auto here = self.lock();
        if (const auto from = weak.lock(); here && from) here->ended(from, why);
      });
  return made;
}

template <class Any>
void basic_manager<Any>::adopt_output(tcp_socket socket, const member_ptr& owner,
                                      output_stream stream) {
  const int rank = owner->rank >= 0 ? owner->rank : owner->who.rank;
  if (rank < first_ || rank >= first_ + size()) {
    owner->unread.emplace_back(std::move(socket), stream);
  } else {
    read(std::move(socket), owner, rank, stream);
  }
}

template <class Any>
void basic_manager<Any>::read(tcp_socket socket, const member_ptr& owner, int rank,
                              output_stream stream) {
  ask_when_idle(socket);
  const auto stop = std::make_shared<asio::cancellation_signal>();
  outputs_.push_back(stop);
  owner->outputs.push_back(stop);
  ++open_outputs_;
  auto ended = [self = this->weak_from_this(), output = output_, stop](std::exception_ptr) {
    const auto here = self.lock();
    if (!here) return;
    std::erase(here->outputs_, stop);
    if (--here->open_outputs_ == 0) here->changed_.notify();
  };
  run_beside(io_, read_output(std::move(socket), rank, stream, *output_, options_.longest_line()),
             std::move(ended), stop->slot());
}

/// What a process has printed whose rank will never be known.
template <class Any>
void basic_manager<Any>::read_unread(const member_ptr& from) {
  for (auto& [socket, stream] : from->unread) read(std::move(socket), from, launcher_rank, stream);
  from->unread.clear();
}

template <class Any>
asio::awaitable<void> basic_manager<Any>::watch_child() {
  loop_guard guard(this->shared_from_this());
  auto waiting = child_->wait();
  exited_ = co_await std::move(waiting);
  if (!ready_) {
    fail_launch(errc::launch_failed, "the launcher " + exited_->text() + "; " + missing());
  }
  changed_.notify();
  // What its ranks have sent is in their connections; these end by themselves.
  const auto open = [](const member_ptr& each) { return !each->control->ended(); };
  const auto limit = from_now(output_bound_);
  if (std::any_of(joined_.begin(), joined_.end(), open)) {
    asio::steady_timer pause(io_, std::chrono::seconds(1));
    co_await pause.async_wait(awaiting<Any>);
    for (const member_ptr& each : joined_) {
      if (!each->control->ended()) lose(each, "the launcher " + exited_->text());
    }
  }
  auto reading = read_to_the_end(limit);
  co_await std::move(reading);
  guard.release();
  watches_child_ = false;
  changed_.notify();
}

/// Outputs end with their ranks, unless a process that a rank has started still has one.
template <class Any>
asio::awaitable<void> basic_manager<Any>::read_to_the_end(clock::time_point limit) {
  for (bool in_time = true; in_time && open_outputs_ > 0;) {
    in_time = co_await changed_.wait_until(limit);
  }
  const auto left = outputs_;
  for (const auto& each : left) each->emit(asio::cancellation_type::terminal);
}

template <class Any>
void basic_manager<Any>::fail_launch(errc code, const std::string& text) {
  if (ready_ || !problem_.empty()) return;
  problem_ = text;
  problem_code_ = code;
  changed_.notify();
}

template <class Any>
std::string basic_manager<Any>::missing() const {
  std::vector<int> absent;
  for (std::size_t i = 0; i < begun_.size(); ++i) {
    if (begun_[i] == nullptr) absent.push_back(first_ + static_cast<int>(i));
  }
  std::string text =
      absent.empty() ? "all ranks had begun" : "missing: " + detail::rank_list(absent);
  std::size_t listed = 0;
  for (const member_ptr& each : joined_) {
    if (each->rank >= 0 || each->state == worker_state::lost || ++listed > 8) continue;
    text += listed == 1 ? "; connected, but their MPI has not begun: " : ", ";
    text += label(*each);
  }
  return text;
}

template <class Any>
void basic_manager<Any>::listen() {
  const auto made = std::make_shared<reception>(
      io_, token_, begun_.size() * 4 + 16,
      [self = this->weak_from_this()](const greeting& hello) {
        const auto here = self.lock();
        return here && here->expects(hello);
      },
      [self = this->weak_from_this()](const greeting& hello, tcp_socket&& socket) {
        if (const auto here = self.lock()) here->arrived(hello, std::move(socket));
      });
  made->listen(options_.interface());
  reception_ = made;
}

template <class Any>
void basic_manager<Any>::stop_listening() {
  if (reception_) reception_->close();
}

template <class Any>
typename basic_manager<Any>::member_ptr basic_manager<Any>::member_of(const greeting& hello) const {
  for (const member_ptr& each : joined_) {
    if (each->session == hello.session) return each;
  }
  return nullptr;
}

template <class Any>
bool basic_manager<Any>::expects(const greeting& hello) const {
  if (ready_ || !problem_.empty()) return false;
  const member_ptr owner = member_of(hello);
  if (hello.purpose == purpose::control) return !owner && joined_.size() < begun_.size();
  if (hello.purpose != purpose::heartbeat) return owner != nullptr;
  return owner && !owner->life && owner->beats;
}

template <class Any>
void basic_manager<Any>::arrived(const greeting& hello, tcp_socket&& socket) {
  const member_ptr owner = member_of(hello);
  switch (hello.purpose) {
    case purpose::control:
      join(std::make_shared<tcp_link>(std::move(socket), options_.max_message()))->session =
          hello.session;
      return;
    case purpose::heartbeat:
      owner->life.emplace(std::move(socket));
      owner->shows_life =
          true;  // the connection is a sign; one that stops before the first is lost
      run_beside(io_, listen_to(this->weak_from_this(), owner), [](std::exception_ptr) {});
      return;
    case purpose::standard_output:
      return adopt_output(std::move(socket), owner, output_stream::out);
    case purpose::standard_error:
      return adopt_output(std::move(socket), owner, output_stream::err);
  }
}

template <class Any>
asio::awaitable<void> basic_manager<Any>::clean_up_launch() {
  if (child_) {
    auto ending = child_->terminate(options_.grace());
    co_await std::move(ending);
  }
  ended_ = true;
  for (const member_ptr& each : joined_) {
    part_from(each, problem_);
    read_unread(each);
    if (each->state != worker_state::lost) each->state = worker_state::gone;
  }
}

// ---- messages --------------------------------------------------------------------------------

template <class Any>
std::string basic_manager<Any>::label(const member& whom) const {
  std::string text = whom.rank >= 0 ? "rank " + std::to_string(whom.rank) : std::string("a worker");
  if (!whom.known) return text;
  return text + " (pid " + std::to_string(whom.who.pid) + " on " + whom.who.host + ")";
}

template <class Any>
void basic_manager<Any>::received(const member_ptr& from, message&& each) {
  if (from->state == worker_state::lost || from->state == worker_state::gone) return;
  const message_kind kind = each.kind;
  if (!handle(from, std::move(each))) {
    return lose(from, "it broke the protocol: a message of kind " +
                          std::to_string(static_cast<int>(kind)) + " while it is " +
                          std::string(to_text(from->state)));
  }
  // A large answer that nobody awaits any more may come after the number; this message is counted
  // when this function has returned.
  if (!from->announced) return;
  const std::uint64_t others = from->control->received();
  if (others > *from->announced) return lose(from, "it broke the protocol: more than it announced");
  from->finished = others == *from->announced;
  changed_.notify();  // a shutdown may wait for it
}

/// False if no worker sends such a message at that time.
template <class Any>
bool basic_manager<Any>::handle(const member_ptr& from, message&& each) {
  const bool draining = from->state == worker_state::draining;
  const bool works =
      draining || from->state == worker_state::ready || from->state == worker_state::stuck;
  switch (each.kind) {
    case message_kind::identity:
      on_identity(from, each);
      return true;
    case message_kind::table:
      if (!from->asked) return false;
      on_table(from, each);
      return true;
    case message_kind::started:
      on_started(from, each);
      return true;
    case message_kind::call:
    case message_kind::cancel:
      if (!works) return false;
      if (options_.serve_calls()) {
        called(from->control, std::move(each));
      } else if (each.kind == message_kind::call) {
        std::vector<std::byte> bytes;
        wire::writer out(bytes);
        const auto why = std::make_exception_ptr(
            error(errc::refused, "this manager serves no calls: set its option serve_calls"));
        encode_exception(out, why, adopted_ ? 0 : manager_id, process::host_name());
        from->control->send(message_kind::failure, each.id, std::move(bytes));
      }
      return true;
    case message_kind::quiet: {
      if (!works) return false;
      wire::reader in(each.bytes);
      from->traffic = in.get<peer_traffic>();
      changed_.notify();
      return in.ok();
    }
    case message_kind::result:
    case message_kind::failure:
      if (!works || !calls_->answered(from->rank, std::move(each))) return false;
      take_in_again();
      if (watched_calls_ > 0) changed_.notify();
      return true;
    case message_kind::stands_aside: {
      if (!works) return false;
      wire::reader in(each.bytes);
      const auto said = in.get<standing_aside>();
      stands_aside(from, each.id, said);
      return in.ok();
    }
    case message_kind::used: {
      if (!works) return false;
      wire::reader in(each.bytes);
      from->used[each.id] = in.get<communicator_use>();
      return in.ok();
    }
    case message_kind::finished: {
      if (!draining || from->announced) return false;
      wire::reader in(each.bytes);
      const bool complete = in.get<bool>();
      const std::uint64_t sent = in.varint();
      if (!in.ok()) return false;
      if (complete) {
        from->announced = sent;
      } else {
        lose(from, "messages were lost at the end");
      }
      return true;
    }
    default:
      return false;
  }
}

template <class Any>
void basic_manager<Any>::on_identity(const member_ptr& from, const message& each) {
  wire::reader in(each.bytes);
  identity who;
  in.get(who);
  if (!in.ok() || from->known) return lose(from, "it broke the protocol: identity");
  from->who = std::move(who);
  from->known = true;
  if (!from->over_tcp) from->session = from->who.session;
  if (from->who.table != function_table::instance().digest()) {
    from->asked = true;
    from->control->send(message_kind::ask_table, 0);
  } else if (from->who.program != program_id()) {
    refuse_member(from, errc::binary_mismatch,
                  label(*from) + " runs another program than this one: " + from->who.program +
                      ", not " + program_id() + "; their function tables are equal");
  } else {
    from->welcome = true;
    welcome said;
    // Over TCP the end of a process is noticed, but not that of its machine, or of the way there.
    from->beats = heartbeat_ > heartbeat_.zero() &&
                  (options_.heartbeat() || !from->over_tcp || from->who.machine != machine_);
    if (from->beats) said.heartbeat = heartbeat_.count();
    if (!options_.heartbeat()) {
      using std::chrono::nanoseconds;
      said.heartbeat_patience =
          std::min(nanoseconds(std::chrono::seconds(2)), nanoseconds(options_.timeout() / 4))
              .count();
    }
    from->control->send(message_kind::welcome, 0, wire::encode(said));
  }
}

template <class Any>
void basic_manager<Any>::on_table(const member_ptr& from, const message& each) {
  wire::reader in(each.bytes);
  std::vector<function_table::entry> theirs;
  in.get(theirs);
  if (!in.ok()) return lose(from, "it broke the protocol: table");
  refuse_member(from, errc::binary_mismatch,
                label(*from) + " runs another program than this one: " +
                    first_difference(function_table::instance().entries(), theirs, "in the manager",
                                     "in the worker"));
}

template <class Any>
void basic_manager<Any>::refuse_member(const member_ptr& whom, errc code, const std::string& text) {
  std::vector<std::byte> bytes;
  wire::writer(bytes).text(text);
  whom->control->send(message_kind::refused, 0, std::move(bytes));
  fail_launch(code, text);
}

template <class Any>
void basic_manager<Any>::on_started(const member_ptr& from, const message& each) {
  wire::reader in(each.bytes);
  const auto said = in.get<started>();
  if (!in.ok() || !from->welcome || from->rank >= 0 || said.rank < 0) {
    return lose(from, "it broke the protocol: started");
  }
  if (said.size != first_ + size()) {
    return refuse_member(from, errc::launch_failed,
                         label(*from) + " says that it is rank " + std::to_string(said.rank) +
                             " of " + std::to_string(said.size) + ", not of " +
                             std::to_string(first_ + size()) +
                             ": this launcher belongs to another MPI than the program");
  }
  const auto place = static_cast<std::size_t>(said.rank - first_);
  if (said.rank < first_ || place >= begun_.size() || begun_[place] != nullptr) {
    return refuse_member(from, errc::launch_failed,
                         label(*from) + " says that it is rank " + std::to_string(said.rank) +
                             ", as another one has said before");
  }
  from->rank = said.rank;
  from->peers = said.peers;
  begun_[place] = from;
  for (auto& [socket, stream] : from->unread) read(std::move(socket), from, from->rank, stream);
  from->unread.clear();
  // One may have begun and be lost by now, which ends the launch a little later.
  const auto begun = [](const member_ptr& one) {
    return one != nullptr && one->state == worker_state::starting;
  };
  if (problem_.empty() && std::all_of(begun_.begin(), begun_.end(), begun)) all_are_ready();
}

template <class Any>
void basic_manager<Any>::all_are_ready() {
  ready_ = true;
  starts_again_ = false;
  ended_ = false;
  ranks_ = std::exchange(begun_, {});
  stop_listening();
  if (options_.interrupt() && !signals_) {
    signals_.emplace(io_, SIGINT);
    wait_for_interrupt();
  }
  for (const member_ptr& one : ranks_) {
    one->state = worker_state::ready;
    std::vector<std::byte> bytes;
    wire::writer(bytes).varint(options_.max_message());
    one->control->send(message_kind::ready, 0, std::move(bytes));
    event_happened({worker_event::kind::registered, one->rank, {}});
  }
  if (std::any_of(ranks_.begin(), ranks_.end(), [](const auto& one) { return one->shows_life; })) {
    run_beside(io_, look_for_silent_ones(),
               [self = this->shared_from_this()](std::exception_ptr) {});
  }
  changed_.notify();
  tell_who_waits_for_start();
}

/// Signs of life, until the worker says that it leaves.
template <class Any>
asio::awaitable<void> basic_manager<Any>::listen_to(std::weak_ptr<manager> over, member_ptr whom) {
  std::array<life_sign, 64> signs{};
  bool any = false;
  for (;;) {
    std::error_code failed;
    const std::size_t got = co_await whom->life->async_read_some(
        asio::buffer(signs), asio::redirect_error(awaiting<Any>, failed));
    if (failed) break;
    any = whom->heard = true;
    whom->shows_life = signs[got - 1] != life_sign::leaves;
  }
  if (!any) {  // it has given up before it was let in
    whom->shows_life = false;
    whom->life.reset();
  }
  // Where messages travel over MPI, this is what tells that a process has ended. Where they travel
  // over TCP their connection does, behind the last of them.
  const auto here = over.lock();
  if (here && whom->shows_life && !whom->over_tcp) here->ended(whom, asio::error::eof);
}

/// A worker is lost after some looks in succession at which nothing had come: if it was this
/// process that stood still, the first look counts once, and what has arrived meanwhile is read
/// before the second.
template <class Any>
asio::awaitable<void> basic_manager<Any>::look_for_silent_ones() {
  const auto has_workers = [&] {
    return ready_ && std::any_of(ranks_.begin(), ranks_.end(), [](const member_ptr& each) {
             return each->state == worker_state::ready || each->state == worker_state::draining ||
                    each->state == worker_state::stuck;
           });
  };
  while (has_workers()) {
    const auto next = from_now(heartbeat_);
    for (bool waiting = true; waiting && has_workers();) {
      waiting = co_await changed_.wait_until(next);
    }
    for (const member_ptr& each : ranks_) {
      if (!each->shows_life) continue;
      each->silent = std::exchange(each->heard, false) ? 0 : each->silent + 1;
      if (each->silent < silent_heartbeats) continue;
      lose(each, "nothing was heard of it for " + std::to_string(silent_heartbeats) +
                     " heartbeats: it stands still, or its machine has vanished");
    }
  }
}

template <class Any>
void basic_manager<Any>::ended(const member_ptr& from, std::error_code why) {
  if (from->state == worker_state::lost || from->state == worker_state::gone) return;
  if (from->finished) {
    from->state = worker_state::gone;
    event_happened({worker_event::kind::deregistered, from->rank, {}});
    changed_.notify();
    return;
  }
  if (from->announced) return lose(from, "messages were lost at the end");
  lose(from, why == asio::error::eof || why == asio::error::connection_reset
                 ? std::string("its connection was closed: the process has ended")
             : why == errc::invalid_argument ? std::string("it broke the protocol: no frame")
                                             : "its connection failed: " + why.message());
}

template <class Any>
void basic_manager<Any>::lose(const member_ptr& whom, const std::string& cause, parting how) {
  if (whom->state == worker_state::lost || whom->state == worker_state::gone) return;
  whom->state = worker_state::lost;
  whom->cause = cause;
  if (how == parting::hang_up) part_from(whom, cause);
  if (!ready_) {
    read_unread(whom);
    // The launcher's own words say more, if they come soon.
    run_beside(
        io_,
        [](std::shared_ptr<manager> self, std::string text) -> asio::awaitable<void> {
          asio::steady_timer pause(self->io_, std::chrono::milliseconds(500));
          co_await pause.async_wait(awaiting<Any>);
          self->fail_launch(errc::launch_failed, text + "; " + self->missing());
        }(this->shared_from_this(), label(*whom) + " was lost before all had begun: " + cause),
        [](std::exception_ptr) {});
    return;
  }
  const bool first = !starts_again_ && !terminating_;
  const bool again = first && !closing_ && options_.on_loss() == loss_policy::respawn &&
                     times_started_again_ < options_.respawns();
  if (again) {  // who is told of the loss may ask
    starts_again_ = true;
    again_because_ = label(*whom) + " is lost: " + cause;
  }
  if (adopted_) process::missing.fetch_add(1);  // it may never come to MPI_Finalize
  if (!whom->over_tcp) transport_->expect_nothing_of(whom->rank);
  calls_->lose(whom->rank, label(*whom), cause);
  if (server_) server_->lose(whom->control);
  std::vector<std::byte> news;
  wire::writer out(news);
  out.put(static_cast<std::int32_t>(whom->rank));
  out.text(cause);
  for (const member_ptr& each : ranks_) {
    if (each->state == worker_state::ready && each->peers) {
      each->control->send(message_kind::lost, 0, news);
    }
  }
  event_happened({worker_event::kind::lost, whom->rank, cause});
  changed_.notify();
  if (again) {
    if (!std::exchange(restart_runs_, true)) {
      run_beside(io_, start_again(), [self = this->shared_from_this()](std::exception_ptr) {});
    }
  } else if (first && options_.on_loss() != loss_policy::proceed) {
    terminate(label(*whom) + " is lost: " + cause);
  }
}

// ---- once more -------------------------------------------------------------------------------

/// Ends what is left of the job and launches it as the first time, until that succeeds or the time
/// of a launch is over: what is gone, such as a machine, may need time to come back. After a
/// success a loss is a new one, with time of its own.
template <class Any>
asio::awaitable<void> basic_manager<Any>::start_again() {
  loop_guard guard(this->shared_from_this());
  constexpr std::chrono::nanoseconds shortest = std::chrono::milliseconds(250);
  constexpr std::chrono::nanoseconds longest = std::chrono::seconds(8);
  std::chrono::nanoseconds pause = shortest;
  clock::time_point limit{};
  while (starts_again_) {
    const bool new_loss = limit == clock::time_point();
    if (new_loss) {
      ++times_started_again_;
      pause = shortest;
    }
    log::write(log::level::warning, "the job is started again: " + again_because_);
    try {
      auto ending = end_old_job();
      co_await std::move(ending);
      if (new_loss) limit = from_now(options_.timeout());
      auto trying = try_to_start_again(limit);
      co_await std::move(trying);
    } catch (const std::exception& failed) {
      ready_ = false;
      problem_ = failed.what();
    }
    if (ready_) {  // though it may have lost a rank since
      limit = clock::time_point();
      continue;
    }
    again_because_ = "it could not be started again: " + problem_;
    const auto next = from_now(pause);
    pause = std::min(2 * pause, longest);
    const auto is_wanted = [this] { return !closing_ && !terminating_; };
    if (next < limit) {
      for (bool waits = true; waits && is_wanted();) waits = co_await changed_.wait_until(next);
      if (is_wanted()) continue;
    }
    give_up_starting(is_wanted());
  }
  restart_runs_ = false;
  guard.release();
}

/// What that takes is no time of the next launch.
template <class Any>
asio::awaitable<void> basic_manager<Any>::end_old_job() {
  const std::string text = "the job is started again, since " + again_because_;
  // The launcher ends them; where it has crashed, some may live.
  for (const member_ptr& each : ranks_) lose(each, text, parting::by_launcher);
  auto ending = child_->terminate(options_.grace());
  co_await std::move(ending);
  for (const member_ptr& each : ranks_) {
    part_from(each, text);
    if (each->silent < 2) continue;  // else from a machine that has vanished no end may come
    for (const auto& weak : each->outputs) {
      if (const auto output = weak.lock()) output->emit(asio::cancellation_type::terminal);
    }
  }
  while (watches_child_) co_await changed_.wait();
}

template <class Any>
asio::awaitable<void> basic_manager<Any>::try_to_start_again(clock::time_point limit) {
  ready_ = false;
  joined_.clear();
  problem_ = closing_ || terminating_ ? "the workers are ended" : "";
  if (!problem_.empty()) co_return;
  begin();
  listen();
  const auto before = child_;
  std::exception_ptr failed;
  try {
    auto starting = start_launcher();
    co_await std::move(starting);
    auto waiting = wait_until_ready(limit);
    co_await std::move(waiting);
  } catch (...) {
    failed = std::current_exception();
  }
  if (ready_) co_return;
  stop_listening();
  auto cleaning = clean_up_launch();
  co_await std::move(cleaning);
  ended_ = false;  // so far
  if (failed) std::rethrow_exception(failed);
  if (child_ != before) problem_ += words_of_launcher();
}

/// They stay lost.
template <class Any>
void basic_manager<Any>::give_up_starting(bool wanted) {
  if (signals_) signals_->cancel();
  if (wanted) {
    for (const member_ptr& each : ranks_) each->cause += "; " + again_because_;
    log::write(log::level::error, again_because_);
  }
  ended_ = !wanted;
  ready_ = true;
  starts_again_ = false;
  changed_.notify();
  events_changed_.notify();
  tell_who_waits_for_start();
}

template <class Any>
asio::awaitable<void> basic_manager<Any>::ready([[maybe_unused]] job_handle kept) {
  const auto self = this->shared_from_this();
  while (starts_again_) co_await changed_.wait();
  for (const member_ptr& each : ranks_) {
    if (each->state != worker_state::lost) continue;
    throw peer_lost_error({each->rank}, "workers: " + label(*each) + " is lost: " + each->cause);
  }
  if (closing_ || terminating_ || ended_) {
    throw error(errc::closed, "workers: they have been ended");
  }
}

template <class Any>
void basic_manager<Any>::tell_who_waits_for_start() {
  for (const auto& each : std::exchange(waiting_for_start_, {})) each();
}

// ---- calls -----------------------------------------------------------------------------------

template <class Any>
typename basic_manager<Any>::member& basic_manager<Any>::at(int rank) const {
  if (rank < first_ || rank >= first_ + size()) {
    throw error(errc::bad_rank, "rank " + std::to_string(rank) + " of " + std::to_string(size()) +
                                    (first_ == 0 ? "" : ", which begin with 1"));
  }
  if (ranks_.empty()) throw error(errc::manager_reused, "no launched workers");
  return *ranks_[static_cast<std::size_t>(rank - first_)];
}

template <class Any>
callee_process basic_manager<Any>::route(int rank, const std::string& text) const {
  if (closing_) throw error(errc::closed, text + "the workers are shut down");
  if (starts_again_) {
    throw peer_lost_error({rank}, text + "rank " + std::to_string(rank) +
                                      " is lost, and the job is being started again");
  }
  if (ended_ || !ready_) throw error(errc::manager_reused, text + "no launched workers");
  if (adopted_ && rank == 0) return {here_->control, &here_->ordered};
  member& callee = at(rank);
  if (callee.state == worker_state::stuck) {
    throw rank_error(errc::stalled, {rank}, text + label(callee) + " is stuck: " + callee.cause);
  }
  if (callee.state != worker_state::ready) {
    throw peer_lost_error({rank}, text + label(callee) + " is " +
                                      std::string(to_text(callee.state)) + ": " + callee.cause);
  }
  return {callee.control, &callee.ordered};
}

// ---- the end ---------------------------------------------------------------------------------

template <class Any>
asio::awaitable<void> basic_manager<Any>::shutdown(std::chrono::nanoseconds bound,
                                                   [[maybe_unused]] job_handle kept) {
  const auto self = this->shared_from_this();
  const auto limit = from_now(bound);
  closing_ = true;
  output_bound_ = bound;
  fail_launch(errc::closed, "shut down");  // where it is being started again
  changed_.notify();                       // or waits for the next attempt
  for (bool in_time = true; in_time && starts_again_;) {
    in_time = co_await changed_.wait_until(limit);
  }
  if (starts_again_) {
    const std::string text = "shutdown: the job was being started again, and has not ended in time";
    terminate(text);
    throw error(errc::stalled, text);
  }
  if (ended_ || !ready_) {
    ended_ = true;
    co_return;
  }
  for (bool in_time = true; in_time && calls_->pending() > 0;) {
    in_time = co_await changed_.wait_until(limit);
  }
  calls_->give_up_all([](std::string_view name, int rank) {
    return std::make_exception_ptr(
        error(errc::closed, "call of " + std::string(name) + ": rank " + std::to_string(rank) +
                                " has not answered before the shutdown's deadline"));
  });
  for (bool in_time = true; in_time && watched_calls_ > 0;) {
    in_time = co_await changed_.wait_until(limit);
  }
  auto settling = settle(limit);
  const bool settled = co_await std::move(settling);
  const bool apart = !settled || leaves_mpi_as_it_is();
  std::vector<member_ptr> stuck;
  for (const member_ptr& each : ranks_) {
    if (each->state == worker_state::stuck) stuck.push_back(each);
    if (each->state != worker_state::ready && each->state != worker_state::stuck) continue;
    each->state = worker_state::draining;
    std::vector<std::byte> bytes;
    wire::writer out(bytes);
    out.varint(each->control->sent());
    out.put(apart);
    each->control->send(message_kind::finish, 0, std::move(bytes));
  }
  // Where MPI stays as it is all leave together, when they have said that they can.
  const auto is_late = [&](const member_ptr& each) {
    return each->state == worker_state::draining && !(apart && each->finished);
  };
  const auto late = [&](bool also_stuck) {
    std::vector<int> ranks;
    for (const member_ptr& each : ranks_) {
      const bool was_stuck = std::find(stuck.begin(), stuck.end(), each) != stuck.end();
      if (is_late(each) && (also_stuck || !was_stuck)) ranks.push_back(each->rank);
    }
    return ranks;
  };
  // The limit may have gone by with waiting for one that is stuck.
  const std::chrono::nanoseconds a_second = std::chrono::seconds(1);
  const auto enough =
      from_now(std::clamp(bound / 4, a_second, std::chrono::nanoseconds(std::chrono::seconds(10))));
  const auto last = std::max(limit, enough);
  for (bool in_time = true; in_time && !late(false).empty();) {
    in_time = co_await changed_.wait_until(last);
  }
  for (bool in_time = true; in_time && !late(true).empty();) {
    in_time = co_await changed_.wait_until(enough);
  }
  const std::vector<int> laggards = late(true);
  std::vector<int> aside;
  std::string what_is_aside;
  for (const member_ptr& each : ranks_) {
    // An adopted one may have closed its connection by itself.
    const bool closed = each->state == worker_state::gone;
    if (!closed && (each->state != worker_state::draining || is_late(each))) continue;
    if (!each->aside.empty()) {
      aside.push_back(each->rank);
      what_is_aside = each->aside;
    }
    if (closed) continue;
    each->hang_up();
    each->state = worker_state::gone;
    event_happened({worker_event::kind::deregistered, each->rank, {}});
  }
  ended_ = true;
  if (!laggards.empty()) {
    std::string text = "shutdown: not done in time";
    text += adopted_ ? ": " : " and ended by force: ";
    text += detail::rank_list(laggards);
    if (adopted_) {
      let_go(text);
    } else {
      terminate(text);
    }
    throw rank_error(errc::stalled, laggards, text);
  }
  while (server_ && !server_->idle()) {
    const bool in_time = co_await changed_.wait_until(last);
    if (!in_time) break;
  }
  if (transport_) {
    // A worker ends its side after its last word. What nobody receives would reach a later job, so
    // there is a little time for it in any case. For what is sent to a lost one it is used up.
    using std::chrono::milliseconds;
    const auto left = std::chrono::duration_cast<milliseconds>(last - clock::now());
    const auto half = std::clamp(left / 2, milliseconds(100), milliseconds(5000));
    auto stopping = transport_->stop(half, half);
    co_await std::move(stopping);
  }
  changed_.notify();
  if (signals_) signals_->cancel();
  if (child_) {
    run_beside(io_, reap(bound), [self](std::exception_ptr) {});
  } else {
    auto reading = read_to_the_end(last);
    co_await std::move(reading);
  }
  if (aside.empty()) co_return;
  throw rank_error(errc::stalled, aside,
                   "shutdown: " + detail::rank_list(aside) + ": has left MPI as it is, since " +
                       what_is_aside + " was still stuck there, long after it had been given up");
}

/// Waits until no worker runs anything and no message is under way between them. Each says, when
/// nothing runs, how many messages it has exchanged with the others; if the sums of all are equal,
/// and the same twice in succession, none can come any more. False if the time is over before that.
template <class Any>
asio::awaitable<bool> basic_manager<Any>::settle(clock::time_point limit) {
  peer_traffic before;
  for (bool first = true;; first = false) {
    std::vector<member_ptr> asked;
    for (const member_ptr& each : ranks_) {
      if (each->state != worker_state::ready || !each->peers) continue;
      each->traffic.reset();
      std::vector<std::byte> bytes;
      wire::writer(bytes).varint(each->control->sent());
      each->control->send(message_kind::ask_quiet, 0, std::move(bytes));
      asked.push_back(each);
    }
    const auto waits = [](const member_ptr& each) {
      return each->state == worker_state::ready && !each->traffic;
    };
    while (std::any_of(asked.begin(), asked.end(), waits)) {
      const bool in_time = co_await changed_.wait_until(limit);
      if (!in_time) co_return false;  // who is late is named afterwards
    }
    peer_traffic sum;
    bool one_is_lost = false;
    for (const member_ptr& each : ranks_) {
      one_is_lost |= each->state == worker_state::lost;
      if (!each->traffic || each->state != worker_state::ready) continue;
      sum.sent += each->traffic->sent;
      sum.received += each->traffic->received;
    }
    if (sum == peer_traffic()) co_return true;
    // What was sent to a lost one, or by it, is in one of the sums only.
    const bool equal = sum.sent == sum.received || one_is_lost;
    if (!first && equal && sum == before) co_return true;
    before = sum;
    if (!equal) {
      asio::steady_timer pause(io_, std::chrono::milliseconds(1));
      co_await pause.async_wait(awaiting<Any>);
    }
  }
}

/// The launcher ends after its ranks; nobody needs to wait for that.
template <class Any>
asio::awaitable<void> basic_manager<Any>::reap(std::chrono::nanoseconds bound) {
  const auto limit = from_now(bound);
  for (bool in_time = true; in_time && !exited_;) {
    in_time = co_await changed_.wait_until(limit);
  }
  if (!exited_) terminate("the launcher has not ended after its ranks");
}

/// Once cancels the calls in flight, twice ends the workers.
template <class Any>
void basic_manager<Any>::wait_for_interrupt() {
  signals_->async_wait([self = this->weak_from_this()](std::error_code stopped, int) {
    const auto here = self.lock();
    if (stopped || !here) return;
    if (++here->interrupts_ > 1) return here->terminate("interrupted twice");
    here->calls_->interrupt();
    here->tell_who_waits_for_start();
    here->wait_for_interrupt();
  });
}

template <class Any>
void basic_manager<Any>::check_can_run_here() const {
  if (!adopted_) {
    throw error(errc::not_supported,
                "call_options: include_manager: the manager is a rank of adopted jobs only");
  }
}

template <class Any>
void basic_manager<Any>::terminate(const std::string& why) {
  if (terminating_) return;
  terminating_ = true;
  if (signals_) signals_->cancel();
  if (starts_again_) {  // that ends them
    fail_launch(errc::closed, why);
    return changed_.notify();
  }
  if (adopted_) process::end_job("workers are ended, and the job with them: " + why);
  log::write(log::level::info, "workers are ended: " + why);
  if (!child_) {  // ranks that somebody else has started leave by themselves
    for (const member_ptr& each : joined_) lose(each, why);
    ended_ = true;
    return changed_.notify();
  }
  run_beside(
      io_,
      [](std::shared_ptr<manager> self) -> asio::awaitable<void> {
        auto ending = self->child_->terminate(self->options_.grace());
        co_await std::move(ending);
      }(this->shared_from_this()),
      [](std::exception_ptr) {});
}

template <class Any>
void basic_manager<Any>::terminate(int rank) {
  if (adopted_ || !child_ || options_.on_loss() != loss_policy::proceed) {
    throw error(errc::not_supported,
                "terminate: rank " + std::to_string(rank) +
                    ": only of a job that was launched with loss_policy::proceed; the launcher of "
                    "any other ends all ranks with it");
  }
  if (starts_again_ || ended_) throw error(errc::manager_reused, "terminate: no launched workers");
  member& whom = at(rank);
  for (const member_ptr& each : ranks_) {
    if (each.get() == &whom) return lose(each, "it was ended by terminate");
  }
}

template <class Any>
void basic_manager<Any>::abandon() {
  if (ended_ || terminating_ || !launched_ || options_.ranks() == 0) return;
  closing_ = true;
  ended_ = true;
  if (std::uncaught_exceptions() == 0) {  // else the exception is what went wrong
    log::write(log::level::warning, "the last handle of workers was dropped without shutdown");
  }
  changed_.notify();  // nobody is interested in how calls end
  if (adopted_) return let_go("the last handle was dropped without shutdown");
  terminate("the last handle was dropped");
}

// ---- looks -----------------------------------------------------------------------------------

template <class Any>
worker_state basic_manager<Any>::state(int rank) const {
  return at(rank).state;
}
template <class Any>
std::string basic_manager<Any>::cause(int rank) const {
  return at(rank).cause;
}
template <class Any>
std::string basic_manager<Any>::host(int rank) const {
  return at(rank).who.host;
}
template <class Any>
std::int64_t basic_manager<Any>::pid(int rank) const {
  return at(rank).who.pid;
}

template <class Any>
void basic_manager<Any>::event_happened(worker_event each) {
  constexpr std::size_t kept = 10'000;  // of those that nobody asks for
  if (events_.size() == kept) events_.pop_front();
  events_.push_back(std::move(each));
  events_changed_.notify();
}

template <class Any>
asio::awaitable<worker_event> basic_manager<Any>::next_event([[maybe_unused]] job_handle kept) {
  const auto self = this->shared_from_this();
  const auto has_left = [](const member_ptr& one) {
    return one->state == worker_state::lost || one->state == worker_state::gone;
  };
  while (events_.empty()) {
    if (!starts_again_ && std::all_of(ranks_.begin(), ranks_.end(), has_left)) {
      throw error(errc::closed, "next_event: all workers have left");
    }
    co_await events_changed_.wait();
  }
  worker_event next = std::move(events_.front());
  events_.pop_front();
  co_return next;
}

}  // namespace cohort::cluster
