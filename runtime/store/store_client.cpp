#include "lockstep/runtime/store/store_client.h"

// C library headers, for their types.
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/internal/deadline.h"
#include "lockstep/runtime/base/net/secure_socket.h"
#include "lockstep/runtime/base/net/socket_error.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using Clock = StreamSocket::Clock;

constexpr size_t kReadBytes = size_t{64} * 1024;

}  // namespace

StoreClient::StoreClient(const StoreClientOptions& options)
    : wake_up_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (wake_up_.get() < 0) throw std::system_error(errno, std::generic_category(), "store");
  connect(options);
  thread_ = std::thread([this] { serve(); });
}

void StoreClient::connect(const StoreClientOptions& options) {
  const ChannelIdentity identity{.purpose = kStorePurpose,
                                 .client = options.name,
                                 .server = kStorePurpose,
                                 .generation = options.generation};
  const auto deadline = deadline_after(options.connect_timeout);
  std::exception_ptr reason;
  for (milliseconds pause{5};; pause = std::min(pause * 2, milliseconds(200))) {
    try {
      socket_.emplace(StreamSocket::connect(options.host, options.port, deadline));
      session_ = std::make_unique<TlsSession>(socket_->descriptor(), options.token, identity);
      shake_hands(*session_, deadline);
      in_ = {};
      await_welcome(deadline);
      return;
    } catch (const HandshakeError& error) {
      // A server of the job's last start may be about to end.
      if (error.reason() != HandshakeError::Reason::kIdentity) throw;
      reason = std::current_exception();
    } catch (const std::system_error& error) {
      // If the time ends within an attempt, the answer to an earlier one says more.
      if (!reason || error.code() != std::errc::timed_out) reason = std::current_exception();
    }
    if (Clock::now() + pause >= deadline) std::rethrow_exception(reason);
    std::this_thread::sleep_for(pause);
  }
}

/// The server may have closed the connection since the handshake's last message was sent.
void StoreClient::await_welcome(Clock::time_point deadline) {
  while (!receive()) {
    if (socket_->wait_for(POLLIN, deadline) == 0) throw_socket_error(std::errc::timed_out, "handshake");
  }
}

StoreClient::~StoreClient() {
  close();
}

void StoreClient::close() noexcept {
  {
    MutexLock lock(mutex_);
    is_closed_ = true;
    if (!error_) error_ = std::make_error_code(std::errc::not_connected);
    changed_.notify_all();
    eventfd_write(wake_up_.get(), 1);
  }
  if (thread_.joinable()) thread_.join();
}

void StoreClient::interrupt() noexcept {
  MutexLock lock(mutex_);
  is_interrupted_ = true;
  changed_.notify_all();
}

void StoreClient::set(const std::vector<std::string>& keys, const std::vector<std::string>& values,
                      const StoreCallOptions& options) {
  call({.op = StoreOp::kSet, .keys = keys, .values = values}, options);
}

std::optional<std::vector<std::string>> StoreClient::get(const std::vector<std::string>& keys,
                                                         const std::vector<std::string>& unless,
                                                         const StoreCallOptions& options) {
  auto reply = call({.op = StoreOp::kGet, .keys = keys, .unless = unless}, options);
  if (reply.status == StoreStatus::kEnded) return std::nullopt;
  return std::move(reply.values);
}

bool StoreClient::check(const std::vector<std::string>& keys, const StoreCallOptions& options) {
  return call({.op = StoreOp::kCheck, .keys = keys}, options).number == 1;
}

int64_t StoreClient::add(const std::string& key, int64_t number, const StoreCallOptions& options) {
  return call({.op = StoreOp::kAdd, .number = number, .keys = {key}}, options).number;
}

void StoreClient::append(const std::string& key, const std::string& value, const StoreCallOptions& options) {
  call({.op = StoreOp::kAppend, .keys = {key}, .values = {value}}, options);
}

std::string StoreClient::compare_set(const std::string& key, const std::string& expected,
                                     const std::string& desired, const StoreCallOptions& options) {
  return call({.op = StoreOp::kCompareSet, .keys = {key}, .values = {expected, desired}}, options)
      .values.at(0);
}

bool StoreClient::erase(const std::string& key, const StoreCallOptions& options) {
  return call({.op = StoreOp::kErase, .keys = {key}}, options).number == 1;
}

int64_t StoreClient::num_keys(const StoreCallOptions& options) {
  return call({.op = StoreOp::kCount}, options).number;
}

uint64_t StoreClient::begin_get(const std::vector<std::string>& keys) {
  MutexLock lock(mutex_);
  return send({.op = StoreOp::kGet, .keys = keys});
}

std::optional<std::vector<std::string>> StoreClient::poll_get(uint64_t number) {
  MutexLock lock(mutex_);
  auto reply = take_reply(number);
  if (!reply) return std::nullopt;
  return std::move(reply->values);
}

void StoreClient::end_get(uint64_t number) noexcept {
  try {
    MutexLock lock(mutex_);
    cancel(number);
  } catch (const std::exception&) {  // out of memory: the server answers in vain
  }
}

StoreReply StoreClient::call(StoreRequest request, const StoreCallOptions& options) {
  const auto deadline = deadline_after(options.timeout);
  MutexLock lock(mutex_);
  const uint64_t id = send(std::move(request));
  for (;;) {
    auto reply = take_reply(id);
    if (reply) return std::move(*reply);
    const bool is_interrupted = options.is_interruptible && is_interrupted_;
    if (is_interrupted || Clock::now() >= deadline) {
      cancel(id);
      throw_socket_error(is_interrupted ? std::errc::operation_canceled : std::errc::timed_out, "store");
    }
    changed_.wait_until(mutex_, deadline);
  }
}

/// Queues a request for the thread, and returns its id.
uint64_t StoreClient::send(StoreRequest request) {
  if (error_) throw std::system_error(error_, "store");
  request.id = next_id_++;
  const auto bytes = encode(request);
  queued_.insert(queued_.end(), bytes.begin(), bytes.end());
  if (request.op != StoreOp::kCancel) calls_[request.id] = std::nullopt;
  eventfd_write(wake_up_.get(), 1);
  return request.id;
}

void StoreClient::cancel(uint64_t id) {
  if (calls_.erase(id) > 0 && !error_) send({.op = StoreOp::kCancel, .number = static_cast<int64_t>(id)});
}

/// Throws if the reply cannot come any more, or the server has refused the request.
std::optional<StoreReply> StoreClient::take_reply(uint64_t id) {
  const auto found = calls_.find(id);
  if (found != calls_.end() && found->second) {
    auto reply = std::move(*found->second);
    calls_.erase(found);
    if (reply.status == StoreStatus::kRefused)
      throw ClusterError("[store] " + (reply.values.empty() ? std::string() : reply.values.front()));
    return reply;
  }
  if (!error_) return std::nullopt;
  calls_.erase(id);
  throw std::system_error(error_, "store");
}

void StoreClient::serve() {
  std::error_code error;
  try {
    exchange();
  } catch (const std::system_error& failure) {
    error = failure.code();
  } catch (const InvalidArgument&) {  // not a reply
    error = std::make_error_code(std::errc::bad_message);
  } catch (const std::bad_alloc&) {
    error = std::make_error_code(std::errc::not_enough_memory);
  }
  socket_->shut();
  MutexLock lock(mutex_);
  if (!error_) error_ = error;
  changed_.notify_all();
}

/// Returns once close() is called.
void StoreClient::exchange() {
  for (;;) {
    {
      MutexLock lock(mutex_);
      if (is_closed_) return;
      out_.insert(out_.end(), queued_.begin(), queued_.end());
      queued_.clear();
    }
    const bool is_sent = send_queued();
    receive();
    const auto events = static_cast<short>(is_sent ? POLLIN : POLLIN | POLLOUT);
    std::array<pollfd, 2> polled{{{socket_->descriptor(), events, 0}, {wake_up_.get(), POLLIN, 0}}};
    poll(polled.data(), polled.size(), -1);
    eventfd_t value = 0;
    if (polled[1].revents != 0) eventfd_read(wake_up_.get(), &value);
  }
}

/// Returns whether all is sent.
bool StoreClient::send_queued() {
  while (out_begin_ < out_.size()) {
    const std::span<const uint8_t> rest = std::span(out_).subspan(out_begin_);
    const size_t count = session_->send(std::span(&rest, 1));
    if (count == 0) return false;
    out_begin_ += count;
  }
  out_.clear();
  out_begin_ = 0;
  return true;
}

/// Receives what has arrived, and returns whether the welcome was in it.
bool StoreClient::receive() {
  std::vector<uint8_t> bytes(kReadBytes);
  bool is_welcome = false;
  for (;;) {
    const auto count = session_->receive(bytes);
    if (!count) throw_socket_error(std::errc::connection_reset, "store");
    if (*count == 0) return is_welcome;
    in_.add(std::span(bytes).first(*count));
    while (const auto message = in_.next()) {
      auto reply = decode_store_reply(*message);
      is_welcome = is_welcome || reply.id == kStoreWelcome;
      MutexLock lock(mutex_);
      const auto call = calls_.find(reply.id);
      if (call == calls_.end()) continue;  // it has been ended
      call->second = std::move(reply);
      changed_.notify_all();
    }
  }
}

}  // namespace lockstep
