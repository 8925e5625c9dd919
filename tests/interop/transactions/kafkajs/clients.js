'use strict'
// kafkajs, which another process uses: one call for each line of standard input. foreign_clients.py has the format.

const readline = require('node:readline')
const { Kafka, logLevel } = require('kafkajs')

const clients = new Map()
// One that is gone for a moment is asked again; a refusal is not repeated.
const RETRY = { retries: 30, initialRetryTime: 50, maxRetryTime: 1000 }
const COPIED_AT_ONCE = 10

// Standard output is for answers.
const logCreator = () => ({ namespace, label, log }) => console.error(label, namespace, JSON.stringify(log))

function newKafka(options) {
  const brokers = options['bootstrap.servers'].split(',')
  return new Kafka({ brokers, logLevel: logLevel.INFO, logCreator, retry: RETRY })
}

class ProducerCalls {
  static async open(options) {
    const made = new ProducerCalls()
    made.producer = newKafka(options).producer({
      transactionalId: options['transactional.id'],
      transactionTimeout: Number(options['transaction.timeout.ms'] ?? 60000),
      idempotent: true,
      maxInFlightRequests: 1,
    })
    await made.producer.connect()
    return made
  }

  // The first transaction of a producer is what initializes it.
  async init() {
    await this.begin()
    await this.transaction.abort()
  }

  async begin() {
    this.transaction = await this.producer.transaction()
  }

  async send(topic, partition, value) {
    const [sent] = await this.transaction.send({ topic, acks: -1, messages: [{ partition: Number(partition), value }] })
    return [sent.baseOffset]
  }

  async offset(topic, partition, offset, consumerGroupId) {
    const topics = [{ topic, partitions: [{ partition: Number(partition), offset }] }]
    await this.transaction.sendOffsets({ consumerGroupId, topics })
  }

  async commit() {
    await this.transaction.commit()
  }

  async abort() {
    await this.transaction.abort()
  }

  async close() {
    await this.producer.disconnect()
  }
}

class ConsumerCalls {
  static async open(options) {
    const made = new ConsumerCalls()
    made.records = []
    made.consumer = newKafka(options).consumer({
      groupId: options['group.id'],
      readUncommitted: options['isolation.level'] !== 'read_committed',
      maxWaitTimeInMs: 100,
      sessionTimeout: 10000,
      heartbeatInterval: 500,
    })
    await made.consumer.connect()
    return made
  }

  async subscribe(topic) {
    await this.consumer.subscribe({ topics: [topic], fromBeginning: true })
    const eachMessage = async ({ message }) => {
      this.records.push(message)
      this.wake?.()
    }
    await this.consumer.run({ autoCommit: false, eachMessage })
  }

  async poll(milliseconds) {
    return (await this.take(Number(milliseconds), Infinity)).map((message) => message.value.toString())
  }

  async take(milliseconds, most) {
    if (this.records.length === 0) {
      let timer
      await new Promise((resolve) => {
        this.wake = resolve
        timer = setTimeout(resolve, milliseconds)
      })
      clearTimeout(timer)
    }
    return this.records.splice(0, most)
  }

  async close() {
    await this.consumer.disconnect()
  }
}

// Consumes, transforms and produces: a transaction for each call.
class CopierCalls {
  static async open(options) {
    const made = new CopierCalls()
    made.options = options
    made.writer = await ProducerCalls.open(options)
    await made.writer.init()
    made.reader = await ConsumerCalls.open({ ...options, 'isolation.level': 'read_committed' })
    await made.reader.subscribe(options.source)
    return made
  }

  async copy(outcome) {
    const messages = await this.reader.take(1000, COPIED_AT_ONCE)
    if (messages.length === 0) return []
    const { source, target } = this.options
    await this.writer.begin()
    for (const message of messages) await this.writer.send(target, 0, `copy of ${message.value}`)
    const next = (BigInt(messages.at(-1).offset) + 1n).toString()
    await this.writer.offset(source, 0, next, this.options['group.id'])
    if (outcome !== 'crash') await this.writer[outcome]()
    return messages.map((message) => message.value.toString())
  }

  async close() {
    await this.reader.close()
    await this.writer.close()
  }
}

const KINDS = { producer: ProducerCalls, consumer: ConsumerCalls, copier: CopierCalls }

async function answer(what, name, ...given) {
  if (what in KINDS) {
    const pairs = given.map((option) => [option.split('=', 1)[0], option.slice(option.indexOf('=') + 1)])
    clients.set(name, await KINDS[what].open(Object.fromEntries(pairs)))
    return []
  }
  return (await clients.get(name)[what](...given)) ?? []
}

async function main() {
  const write = (...words) => process.stdout.write(words.map((word) => String(word).replace(/[\t\n]/g, ' ')).join('\t') + '\n')
  for await (const line of readline.createInterface({ input: process.stdin })) {
    try {
      write('ok', ...(await answer(...line.split('\t'))))
    } catch (error) {
      console.error(line, error)
      write('error', error.type ?? error.cause?.type ?? error.name, error.message)
    }
  }
  process.exit()
}

main()
