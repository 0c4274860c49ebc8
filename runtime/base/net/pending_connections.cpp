#include "lockstep/runtime/base/net/pending_connections.h"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/net/tls_handshake.h"

namespace lockstep {

PendingConnections::PendingConnections(const PendingConnectionLimits& limits) : limits_(limits) {
  if (limits.max_connections < 1)
    throw InvalidArgument(
        "expected a place or more for connections that have not proved the token, but got " +
        std::to_string(limits.max_connections));
}

PendingConnections::Clock::time_point PendingConnections::slow_from(const Entry& entry) const {
  return entry.begin + (entry.connection->has_greeted() ? limits_.slow_after : limits_.silent_after);
}

bool PendingConnections::has_room(Clock::time_point now) const {
  return connections_.size() < static_cast<size_t>(limits_.max_connections) ||
         std::ranges::any_of(connections_, [&](const Entry& entry) { return now >= slow_from(entry); });
}

void PendingConnections::add(std::unique_ptr<PendingConnection> connection, Clock::time_point now) {
  if (connections_.size() >= static_cast<size_t>(limits_.max_connections)) {
    const auto slow =
        std::ranges::find_if(connections_, [&](const Entry& entry) { return now >= slow_from(entry); });
    reject();  // first, so that those who see the connection end find it counted
    connections_.erase(slow != connections_.end() ? slow : connections_.begin());
  }
  connections_.push_back({.connection = std::move(connection), .begin = now});
}

void PendingConnections::append_awaited(std::vector<pollfd>& polled) const {
  for (const auto& entry : connections_) polled.push_back(entry.connection->awaited());
}

void PendingConnections::advance(std::span<const pollfd> polled) {
  size_t i = 0;
  std::erase_if(connections_,
                [&](const Entry& entry) { return polled[i++].revents != 0 && is_over(*entry.connection); });
}

/// Advances a connection. Returns whether it can be forgotten.
bool PendingConnections::is_over(PendingConnection& connection) {
  try {
    return connection.advance();
  } catch (const HandshakeError& error) {
    if (error.reason() == HandshakeError::Reason::kGranted) return true;
    reject();
    if (error.reason() == HandshakeError::Reason::kToken) ++num_wrong_tokens_;
  } catch (const std::exception&) {  // the connection is lost, or memory has run out
    reject();
  }
  return true;
}

void PendingConnections::end_late(Clock::time_point now) {
  while (!connections_.empty() && now >= connections_.front().begin + limits_.timeout) {
    reject();
    connections_.pop_front();
  }
}

PendingConnections::Clock::time_point PendingConnections::next_change(Clock::time_point now) const {
  if (connections_.empty()) return Clock::time_point::max();
  auto change = connections_.front().begin + limits_.timeout;
  if (has_room(now)) return change;
  for (const auto& entry : connections_) change = std::min(change, slow_from(entry));
  return change;
}

}  // namespace lockstep
