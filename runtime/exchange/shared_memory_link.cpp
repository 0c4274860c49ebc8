#include "lockstep/runtime/exchange/shared_memory_link.h"

// C library headers, for their types.
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "lockstep/runtime/base/internal/signal_guard.h"
#include "lockstep/runtime/base/net/socket_error.h"
#include "lockstep/runtime/exchange/internal/descriptor_passing.h"

namespace lockstep {
namespace {

constexpr uint64_t kMemoryMagic = 0x314d48534b434f4c;  // "LOCKSHM1"
constexpr size_t kMaxCapacity = size_t{1} << 30;
// Longer pieces are published part by part, so that the peer can read one while the next is written.
constexpr size_t kPieceBytes = size_t{64} * 1024;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

}  // namespace

/// One direction. Counts grow for ever; a byte lies at its number modulo the capacity.
struct SharedMemoryLink::Ring {
  alignas(64) std::atomic<uint64_t> written;
  alignas(64) std::atomic<uint64_t> read;
  // Set by an end before it waits, and cleared by the one that wakes it.
  alignas(64) std::atomic<uint32_t> is_reader_waiting;
  alignas(64) std::atomic<uint32_t> is_writer_waiting;
};

struct SharedMemoryLink::Layout {
  uint64_t magic;
  uint64_t capacity;
  Ring rings[2];  // from its maker, and to it
};

class SharedMemoryLink::Mapping {
 public:
  Mapping(const Descriptor& memory, size_t size) : size_(size) {
    void* address = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
    if (address == MAP_FAILED) throw_socket_error(errno, "map shared memory");
    memory_ = static_cast<Layout*>(address);
  }
  ~Mapping() { munmap(memory_, size_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  static constexpr size_t kHeaderBytes = 4096;

  Layout& memory() const { return *memory_; }
  size_t capacity() const { return (size_ - kHeaderBytes) / 2; }
  uint8_t* data(const Ring* ring) const {
    return reinterpret_cast<uint8_t*>(memory_) + kHeaderBytes + (ring == &memory_->rings[0] ? 0 : capacity());
  }

 private:
  Layout* memory_ = nullptr;
  size_t size_;
};

SharedMemoryLink::Memory::Memory(Descriptor descriptor, std::unique_ptr<Mapping> mapping)
    : descriptor_(std::move(descriptor)), mapping_(std::move(mapping)) {}
SharedMemoryLink::Memory::~Memory() = default;
SharedMemoryLink::Memory::Memory(Memory&&) noexcept = default;
SharedMemoryLink::Memory& SharedMemoryLink::Memory::operator=(Memory&&) noexcept = default;

SharedMemoryLink::Memory SharedMemoryLink::allocate(size_t capacity) {
  static_assert(sizeof(Layout) <= Mapping::kHeaderBytes && std::atomic<uint64_t>::is_always_lock_free);
  capacity = std::bit_ceil(std::clamp(capacity, size_t{4096}, kMaxCapacity));
  const size_t size = Mapping::kHeaderBytes + 2 * capacity;
  Descriptor memory(memfd_create("lockstep", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (memory.get() < 0) throw_socket_error(errno, "make shared memory");
  // Memory that is missing is an error here, and not a signal when it is first used. A limit of the size of
  // files holds for it, too.
  const SignalGuard without_file_limit_signal(SIGXFSZ);
  if (const int error = posix_fallocate(memory.get(), 0, static_cast<off_t>(size)); error != 0)
    throw_socket_error(error, "make shared memory");
  if (fcntl(memory.get(), F_ADD_SEALS, kSeals) != 0) throw_socket_error(errno, "seal shared memory");
  auto mapping = std::make_unique<Mapping>(memory, size);
  mapping->memory().magic = kMemoryMagic;
  mapping->memory().capacity = capacity;
  return {std::move(memory), std::move(mapping)};
}

std::unique_ptr<SharedMemoryLink> SharedMemoryLink::share(int socket, Memory memory) {
  Descriptor connection(socket);
  send_descriptor(socket, memory.descriptor_.get());
  return std::unique_ptr<SharedMemoryLink>(
      new SharedMemoryLink(std::move(connection), std::move(memory.mapping_), /*is_maker=*/true));
}

std::unique_ptr<SharedMemoryLink> SharedMemoryLink::receive_from(int socket, Clock::time_point deadline) {
  Descriptor connection(socket);
  const Descriptor memory = receive_descriptor(socket, deadline);
  struct stat status {};
  if (fstat(memory.get(), &status) != 0) throw_socket_error(errno, "check shared memory");
  const auto size = static_cast<size_t>(status.st_size);
  // Memory that shrinks would end this process by a signal.
  const int seals = fcntl(memory.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals || size <= Mapping::kHeaderBytes ||
      size > Mapping::kHeaderBytes + 2 * kMaxCapacity)
    throw_socket_error(EBADMSG, "check shared memory");
  auto mapping = std::make_unique<Mapping>(memory, size);
  if (mapping->memory().magic != kMemoryMagic || mapping->memory().capacity != mapping->capacity() ||
      !std::has_single_bit(mapping->capacity()))
    throw_socket_error(EBADMSG, "check shared memory");
  return std::unique_ptr<SharedMemoryLink>(
      new SharedMemoryLink(std::move(connection), std::move(mapping), /*is_maker=*/false));
}

SharedMemoryLink::SharedMemoryLink(Descriptor socket, std::unique_ptr<Mapping> mapping, bool is_maker)
    : socket_(std::move(socket)),
      mapping_(std::move(mapping)),
      out_(&mapping_->memory().rings[is_maker ? 0 : 1]),
      in_(&mapping_->memory().rings[is_maker ? 1 : 0]) {}

SharedMemoryLink::~SharedMemoryLink() = default;

size_t SharedMemoryLink::num_free() const {
  const uint64_t used = num_written_ - out_->read.load(std::memory_order_acquire);
  if (used > mapping_->capacity()) throw_socket_error(EBADMSG, "send");
  return mapping_->capacity() - used;
}

size_t SharedMemoryLink::num_received() const {
  const uint64_t count = in_->written.load(std::memory_order_acquire) - num_read_;
  if (count > mapping_->capacity()) throw_socket_error(EBADMSG, "receive");
  return count;
}

void SharedMemoryLink::wake_peer() {
  const char byte = 'w';
  // A full socket holds a byte that wakes the peer already. An error is found by the next wait.
  static_cast<void>(::send(socket_.get(), &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL));
}

size_t SharedMemoryLink::send(std::span<const std::span<const uint8_t>> parts) {
  if (is_closed_) throw_socket_error(ECONNRESET, "send");
  const size_t capacity = mapping_->capacity();
  uint8_t* const data = mapping_->data(out_);
  size_t left = num_free();
  size_t count = 0;
  const auto publish = [&] {
    // Sequentially consistent, with the waiter's own store and load: one of the two sees the other.
    out_->written.store(num_written_, std::memory_order_seq_cst);
    if (out_->is_reader_waiting.load(std::memory_order_seq_cst) != 0 &&
        out_->is_reader_waiting.exchange(0) != 0)
      wake_peer();
  };
  size_t unpublished = 0;
  for (const auto& part : parts) {
    size_t done = 0;
    while (done < part.size() && left > 0) {
      const size_t at = num_written_ % capacity;
      const size_t piece = std::min({part.size() - done, left, capacity - at, kPieceBytes - unpublished});
      std::memcpy(data + at, part.data() + done, piece);
      done += piece;
      left -= piece;
      count += piece;
      num_written_ += piece;
      unpublished += piece;
      if (unpublished == kPieceBytes) {
        publish();
        unpublished = 0;
      }
    }
    if (left == 0) break;
  }
  if (unpublished > 0) publish();
  return count;
}

std::span<const uint8_t> SharedMemoryLink::received() {
  const size_t count = num_received();
  if (count == 0 && is_closed_) throw_socket_error(ECONNRESET, "receive");
  const size_t at = num_read_ % mapping_->capacity();
  return {mapping_->data(in_) + at, std::min(count, mapping_->capacity() - at)};
}

void SharedMemoryLink::consume(size_t count) {
  num_read_ += count;
  in_->read.store(num_read_, std::memory_order_seq_cst);
  if (in_->is_writer_waiting.load(std::memory_order_seq_cst) != 0 && in_->is_writer_waiting.exchange(0) != 0)
    wake_peer();
}

short SharedMemoryLink::begin_wait(bool to_send, bool to_receive) {
  if (to_receive) in_->is_reader_waiting.store(1, std::memory_order_seq_cst);
  if (to_send) out_->is_writer_waiting.store(1, std::memory_order_seq_cst);
  const bool can_go_on =
      is_closed_ || (to_receive && in_->written.load(std::memory_order_seq_cst) != num_read_) ||
      (to_send && num_written_ - out_->read.load(std::memory_order_seq_cst) != mapping_->capacity());
  if (!can_go_on) return POLLIN;
  end_wait(0);
  return 0;
}

void SharedMemoryLink::end_wait(short events) {
  in_->is_reader_waiting.store(0, std::memory_order_relaxed);
  out_->is_writer_waiting.store(0, std::memory_order_relaxed);
  if (events == 0) return;
  char bytes[64];
  const ssize_t count = recv(socket_.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
  // What the peer had written before it closed can still be read.
  if (count == 0 || (count < 0 && !may_succeed_later(errno))) is_closed_ = true;
}

void SharedMemoryLink::shut() noexcept {
  shutdown(socket_.get(), SHUT_RDWR);
}

}  // namespace lockstep
