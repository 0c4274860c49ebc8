#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

/// A client of another store whose waits can be ended from outside, so that ranks that look for the keys of
/// one that failed do not sit out the timeout. Each rank has one of its own: a store's client serves its
/// callers one after another.
class InterruptibleStore : public c10d::Store {
 public:
  /// Waits, get() and check() throw CollectiveAborted where `is_interrupted()` and the keys are not there:
  /// waits ask again and again, also those of another such store over this one.
  InterruptibleStore(c10::intrusive_ptr<c10d::Store> store, std::function<bool()> is_interrupted,
                     std::chrono::milliseconds timeout)
      : Store(timeout), store_(std::move(store)), is_interrupted_(std::move(is_interrupted)) {}

  c10::intrusive_ptr<c10d::Store> clone() override;
  void set(const std::string& key, const std::vector<uint8_t>& value) override { store_->set(key, value); }
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& current,
                                  const std::vector<uint8_t>& desired) override {
    return store_->compareSet(key, current, desired);
  }
  std::vector<uint8_t> get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t value) override { return store_->add(key, value); }
  bool deleteKey(const std::string& key) override { return store_->deleteKey(key); }
  bool check(const std::vector<std::string>& keys) override;
  int64_t getNumKeys() override { return store_->getNumKeys(); }
  void wait(const std::vector<std::string>& keys) override { wait(keys, getTimeout()); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;

 private:
  c10::intrusive_ptr<c10d::Store> store_;
  std::function<bool()> is_interrupted_;
};

}  // namespace lockstep
