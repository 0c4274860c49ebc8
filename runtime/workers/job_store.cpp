#include "lockstep/runtime/workers/job_store.h"

#include <c10/util/Exception.h>

#include <system_error>
#include <utility>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

std::string text_of(const std::vector<uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

std::vector<uint8_t> bytes_of(const std::string& text) {
  return {text.begin(), text.end()};
}

[[noreturn]] void throw_given_up() {
  throw CollectiveAborted("the connection was given up");
}

/// Returns the result of `call`, and throws the errors that LibTorch's backends expect of a store.
template <typename Call>
auto with_errors_of_libtorch(const Call& call) {
  try {
    return call();
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::operation_canceled) throw_given_up();
    if (error.code() == std::errc::timed_out)
      C10_THROW_ERROR(DistStoreError, "the job's store has no such key, or no answer, within the timeout");
    C10_THROW_ERROR(DistNetworkError,
                    c10::str("the connection to worker 0 is lost: ", error.code().message()));
  }
}

}  // namespace

StoreCallOptions JobStore::options(std::chrono::milliseconds timeout) const {
  return {.timeout = timeout == kNoTimeout ? StoreClient::kNoTimeout : timeout};
}

std::vector<std::string> JobStore::read(const std::vector<std::string>& keys,
                                        std::chrono::milliseconds timeout) {
  auto call = options(timeout);
  call.is_interruptible = true;
  try {
    auto values = with_errors_of_libtorch([&] { return client_->get(keys, unless_, call); });
    if (values) return std::move(*values);
  } catch (const CollectiveAborted&) {
    // An interrupted call does not look whether the keys are there.
    if (!check(keys)) throw;
    return *with_errors_of_libtorch([&] { return client_->get(keys, {}, options(timeout)); });
  }
  throw_given_up();
}

void JobStore::set(const std::string& key, const std::vector<uint8_t>& value) {
  multiSet({key}, {value});
}

std::vector<uint8_t> JobStore::compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                          const std::vector<uint8_t>& desired) {
  return bytes_of(with_errors_of_libtorch(
      [&] { return client_->compare_set(key, text_of(expected), text_of(desired), options(getTimeout())); }));
}

std::vector<uint8_t> JobStore::get(const std::string& key) {
  return bytes_of(read({key}, getTimeout()).at(0));
}

int64_t JobStore::add(const std::string& key, int64_t value) {
  return with_errors_of_libtorch([&] { return client_->add(key, value, options(getTimeout())); });
}

bool JobStore::deleteKey(const std::string& key) {
  return with_errors_of_libtorch([&] { return client_->erase(key, options(getTimeout())); });
}

bool JobStore::check(const std::vector<std::string>& keys) {
  return with_errors_of_libtorch([&] { return client_->check(keys, options(getTimeout())); });
}

int64_t JobStore::getNumKeys() {
  return with_errors_of_libtorch([&] { return client_->num_keys(options(getTimeout())); });
}

void JobStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) {
  read(keys, timeout);
}

void JobStore::append(const std::string& key, const std::vector<uint8_t>& value) {
  with_errors_of_libtorch([&] { client_->append(key, text_of(value), options(getTimeout())); });
}

std::vector<std::vector<uint8_t>> JobStore::multiGet(const std::vector<std::string>& keys) {
  std::vector<std::vector<uint8_t>> values;
  for (const auto& value : read(keys, getTimeout())) values.push_back(bytes_of(value));
  return values;
}

void JobStore::multiSet(const std::vector<std::string>& keys,
                        const std::vector<std::vector<uint8_t>>& values) {
  std::vector<std::string> texts;
  for (const auto& value : values) texts.push_back(text_of(value));
  with_errors_of_libtorch([&] { client_->set(keys, texts, options(getTimeout())); });
}

}  // namespace lockstep
