// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Starts a process, or says at once why it could not be started; and finds the processes
/// that one has started, as far as they can still be told.

#include <cohort/cluster/launch/launch_command.hpp>
#include <cohort/core/error.hpp>

#include <dirent.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace cohort::cluster::detail {

/// A process and no later one with its number.
struct process_entry {
  pid_t pid = -1;
  pid_t parent = -1;
  unsigned long long start = 0;  ///< in ticks since the machine's start
};

/// Nothing if there is no such process, or if it is a zombie.
template <class Any = void>
[[nodiscard]] std::optional<process_entry> look_up(pid_t pid) {
  // "pid (name) state parent …", the start is field 22; a name may contain anything.
  const std::string text = read_start("/proc/" + std::to_string(pid) + "/stat");
  std::string_view rest(text);
  const auto name = rest.rfind(')');
  if (name == std::string_view::npos || rest.size() < name + 4) return std::nullopt;
  rest.remove_prefix(name + 2);
  if (rest[0] == 'Z' || rest[0] == 'X') return std::nullopt;
  process_entry found{pid, -1, 0};
  for (int field = 3; field <= 22; ++field) {
    const std::string_view word = rest.substr(0, rest.find(' '));
    if (field == 4) std::from_chars(word.data(), word.data() + word.size(), found.parent);
    if (field == 22) std::from_chars(word.data(), word.data() + word.size(), found.start);
    rest.remove_prefix(word.size() < rest.size() ? word.size() + 1 : rest.size());
  }
  return found;
}

/// Its children, their children, and so on; not those whose parent has ended, for they belong to
/// init then.
template <class Any = void>
[[nodiscard]] std::vector<process_entry> descendants(pid_t root) {
  std::vector<process_entry> all;
  if (DIR* folder = ::opendir("/proc")) {
    while (const dirent* one = ::readdir(folder)) {
      const std::string_view name(one->d_name);
      pid_t pid = 0;
      const auto [stop, failed] = std::from_chars(name.data(), name.data() + name.size(), pid);
      if (failed != std::errc{} || stop != name.data() + name.size()) continue;
      if (const auto entry = look_up(pid)) all.push_back(*entry);
    }
    ::closedir(folder);
  }
  std::vector<process_entry> found;
  const auto add_children = [&](pid_t parent) {
    for (const process_entry& one : all) {
      if (one.parent == parent) found.push_back(one);
    }
  };
  add_children(root);
  for (std::size_t i = 0; i < found.size(); ++i) add_children(found[i].pid);
  return found;
}

/// SIGKILL for each that still is the same process.
template <class Any = void>
void kill_all(const std::vector<process_entry>& processes) {
  for (const process_entry& one : processes) {
    const auto now = look_up(one.pid);
    if (now && now->start == one.start) ::kill(one.pid, SIGKILL);
  }
}

/// Owns a file descriptor.
class unique_fd {
 public:
  unique_fd() = default;
  explicit unique_fd(int fd) noexcept : fd_(fd) {}
  ~unique_fd() { reset(); }
  unique_fd(unique_fd&& other) noexcept : fd_(other.release()) {}
  unique_fd& operator=(unique_fd&& other) noexcept {
    reset(other.release());
    return *this;
  }

  [[nodiscard]] int get() const noexcept { return fd_; }
  [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }
  void reset(int fd = -1) noexcept {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

/// A process in a group of its own, and the ends of its outputs that can be read.
struct spawned {
  pid_t pid = -1;
  unique_fd out;
  unique_fd err;
};

[[noreturn]] inline void launch_error(const std::string& what, int code) {
  throw error(errc::launch_failed, what + ": " + std::generic_category().message(code));
}

/// A pipe whose ends are above the three standard ones, which the child redirects, even if this
/// process has closed some of those; close-on-exec.
struct pipe_ends {
  pipe_ends() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) launch_error("pipe", errno);
    read = above_standard(ends[0]);
    write = above_standard(ends[1]);
    if (read.get() < 0 || write.get() < 0) launch_error("pipe", errno);
  }

  static unique_fd above_standard(int fd) {
    unique_fd low(fd);
    return fd > 2 ? std::move(low) : unique_fd(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
  }

  unique_fd read;
  unique_fd write;
};

/// Where the program is: with a slash as it is, from the directory that this process is in, else in
/// the PATH of the environment that it gets.
template <class Any = void>
[[nodiscard]] std::string find_program(const launch_command& command) {
  const std::string& name = command.argv.front();
  if (name.starts_with('/')) return name;
  if (name.find('/') != std::string::npos) {
    std::string path(4096, '\0');
    if (::getcwd(path.data(), path.size()) == nullptr) launch_error(name, errno);
    path.resize(path.find('\0'));
    return path + "/" + name;
  }
  std::string_view folders = "/usr/local/bin:/usr/bin:/bin";
  for (const std::string_view one : command.environment) {
    if (one.starts_with("PATH=")) folders = one.substr(5);
  }
  for (std::string_view rest = folders; !rest.empty();) {
    const std::string_view folder = rest.substr(0, rest.find(':'));
    rest.remove_prefix(std::min(rest.size(), folder.size() + 1));
    if (!folder.starts_with('/')) continue;  // the current folder is not searched by accident
    std::string path = std::string(folder) + "/" + name;
    if (::access(path.c_str(), X_OK) == 0) return path;
  }
  throw error(errc::launch_failed, "cannot start " + name +
                                       ": it is in none of the folders of PATH (" +
                                       std::string(folders) + ")");
}

/// What the child does between fork and exec. Everything here is async-signal-safe, and everything
/// it needs has been made before: another thread of the parent may have held the allocator's lock.
class child_start {
 public:
  template <class Any = void>
  child_start(const launch_command& command, const std::string& program)
      : program_(program.c_str()),
        directory_(command.directory.empty() ? nullptr : command.directory.c_str()),
        argv_(pointers(command.argv)),
        environment_(pointers(command.environment)),
        parent_(::getpid()) {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    most_files_ = static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 1 << 20));
  }

  /// What went wrong, as the child tells its parent.
  enum step : int { none, out_of_parent, enter, redirect, execute };
  struct report {
    int where = none;
    int code = 0;
  };

  [[noreturn]] void run(int null, int out, int err, int errors) const noexcept {
    ::setpgid(0, 0);
    // The child must not outlive the manager; if that has ended already, no signal will come. (0:
    // the parent is in another process namespace.)
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    const pid_t now = ::getppid();
    if (now != parent_ && now != 0) fail(errors, out_of_parent);
    if (directory_ != nullptr && ::chdir(directory_) != 0) fail(errors, enter);
    if (::dup2(null, 0) < 0 || ::dup2(out, 1) < 0 || ::dup2(err, 2) < 0) fail(errors, redirect);
    close_at_exec();
    // Handlers of the parent do not exist in the program, but what it ignores would stay ignored.
    struct sigaction standard{};
    standard.sa_handler = SIG_DFL;
    for (int signal = 1; signal < NSIG; ++signal) ::sigaction(signal, &standard, nullptr);
    sigset_t nothing;
    sigemptyset(&nothing);
    ::sigprocmask(SIG_SETMASK, &nothing, nullptr);
    ::execve(program_, argv_.data(), environment_.data());
    fail(errors, execute);
  }

 private:
  template <class Any = void>
  static std::vector<char*> pointers(const std::vector<std::string>& texts) {
    std::vector<char*> result;
    for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
    result.push_back(nullptr);
    return result;
  }

  /// Everything from 3 upwards, also what a library has opened without close-on-exec.
  void close_at_exec() const noexcept {
#ifdef SYS_close_range
    constexpr unsigned cloexec = 1U << 2;  // CLOSE_RANGE_CLOEXEC: Linux 5.11
    if (::syscall(SYS_close_range, 3U, ~0U, cloexec) == 0) return;
#endif
    for (int fd = 3; fd < most_files_; ++fd) ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  }

  [[noreturn]] static void fail(int errors, step where) noexcept {
    const report what{where, errno};
    [[maybe_unused]] const auto written = ::write(errors, &what, sizeof what);
    ::_exit(127);
  }

  const char* program_;
  const char* directory_;
  std::vector<char*> argv_;
  std::vector<char*> environment_;
  pid_t parent_;
  int most_files_ = 0;
};

/// Starts the command in a process group of its own: stdin is /dev/null, stdout and stderr are
/// pipes, nothing else is open. Returns when the program runs. Throws errc::launch_failed with what
/// could not be done and why.
///
/// fork and not posix_spawn, which can neither ask for a signal at the parent's death nor say which
/// of its steps has failed.
template <class Any = void>
[[nodiscard]] spawned spawn(const launch_command& command) {
  if (command.argv.empty()) throw error(errc::invalid_argument, "launch_command: argv is empty");
  const std::string program = find_program(command);
  const child_start start(command, program);
  pipe_ends out;
  pipe_ends err;
  pipe_ends errors;
  const unique_fd null = pipe_ends::above_standard(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (null.get() < 0) launch_error("/dev/null", errno);

  // Between fork and exec the child has our signal handlers, and some (Asio's) write to a pipe that
  // it shares with us.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t pid = ::fork();
  const int fork_error = errno;
  if (pid == 0) start.run(null.get(), out.write.get(), err.write.get(), errors.write.get());
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) launch_error("fork", fork_error);
  ::setpgid(pid, pid);  // the child does it too: whoever comes first

  errors.write.reset();
  child_start::report report;
  ssize_t size = 0;
  do size = ::read(errors.read.get(), &report, sizeof report);
  while (size < 0 && errno == EINTR);
  if (size != static_cast<ssize_t>(sizeof report)) {
    return {pid, std::move(out.read), std::move(err.read)};
  }
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  std::string what("cannot start " + program);
  if (report.where == child_start::enter) what += " in " + command.directory;
  launch_error(what, report.code);
}

}  // namespace cohort::cluster::detail
