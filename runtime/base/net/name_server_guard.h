#pragma once

#include <memory>

namespace lockstep {

/// While it lives, the calling thread asks no name server: what neither an address nor the machine's own list
/// of hosts tells has no name, which is known at once. For calls that look up the name of every address they
/// connect to, as those of c10d's TCPStore do to say it in their log: where the name server does not answer,
/// each of them would take many seconds.
///
/// It holds for the resolver of the GNU C library; elsewhere, and where it cannot be set up, it does nothing.
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
