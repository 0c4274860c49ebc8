#pragma once

#include <memory>

namespace lockstep {

/// While this object lives, the calling thread asks no name server: names that are neither an address nor in
/// the machine's hosts file fail to resolve at once. Use it for calls that look up the name of every address
/// they connect to, as c10d's TCPStore does for its log: each would take many seconds if the name server does
/// not answer.
///
/// Works with the resolver of the GNU C library only; elsewhere, or if it cannot be set up, it does nothing.
class NameServerGuard {
 public:
  NameServerGuard();
  ~NameServerGuard();
  NameServerGuard(const NameServerGuard&) = delete;
  NameServerGuard& operator=(const NameServerGuard&) = delete;

 private:
  class Responder;
  std::unique_ptr<Responder> responder_;
};

}  // namespace lockstep
